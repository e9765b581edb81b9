/* SPDX-License-Identifier: BSD-2-Clause */
/* How segments come to be and end. All with the move lock held. */
#ifndef SW_DEVICE_ADOPT_SEGMENT_LIFE_H
#define SW_DEVICE_ADOPT_SEGMENT_LIFE_H

#include <stdbool.h>
#include <stdint.h>

#include "device/adopt/adopt.h"
#include "device/adopt/held_calls.h"
#include "device/adopt/uffd.h"
#include "device/adopt/vma.h"
#include "device/rules/pub.h"

/* Adopts the whole pages [start, end) of private anonymous memory of protection `prot`, for peers
 * who may map it as `handed` says. The segment is in the table, without references; NULL, with the
 * reason, if that did not work. */
struct sw_segment *sw_segment_adopt(const struct sw_uffd *uffd, uint64_t start, uint64_t end,
                                    int prot, enum sw_handed_out handed, enum sw_adopt_reason *why);

/* A segment for the whole of a mapping that already is shared, not in the table yet. NULL: no
 * descriptor for it. */
struct sw_segment *sw_segment_share(const struct sw_vma *vma);

/* Frees a segment that is not in the table and whose pages, if they were adopted, are mapped
 * nowhere any more. */
void sw_segment_free(struct sw_segment *segment);

/* Takes apart a segment without references. True if it is freed; false if some of its pages are
 * still shared: it then stays in the table as a remainder. uffd NULL: pages cannot be moved now. */
bool sw_segment_release(struct sw_segment *segment, const struct sw_uffd *uffd);

/* The same, finding out itself whether pages may be moved. */
void sw_segment_finish(struct sw_segment *segment);

/* What the program does to memory of its own, done to what is adopted of [va, end); regions over it
 * are reached by lower rungs from then on.
 *  - withdraw: moves the pages back, to be changed as private memory; false: some stay shared;
 *    lean: with hardly any memory beside them;
 *  - discard: empty private memory takes their place, as by MADV_DONTNEED, up to the first part
 *    that is locked, unless locked_too;
 *  - advise: the mapping that comes back one day is advised, and what is private between. */
bool sw_segments_withdraw(uint64_t va, uint64_t end, bool lean);
void sw_segments_discard(uint64_t va, uint64_t end, bool locked_too);
void sw_segments_advise(uint64_t va, uint64_t end, int advice);
/* Moves back what belongs to one group of the monitor (adopt_monitor.h), in small steps. */
void sw_segments_withdraw_group(unsigned int group);
/* Discards what the caller of a call that is held up wants discarded. */
void sw_segments_discard_held(const struct sw_held_call *call);

/* Calls fn for each part of an adopted segment that still is mapped where it was adopted, in
 * ascending order, until one fails. 0 or a negative errno. */
typedef int (*sw_segment_part_fn)(struct sw_segment *segment, const struct sw_vma *vma,
                                  uint64_t from, uint64_t to, void *arg);
int sw_segments_each_part(sw_segment_part_fn fn, void *arg);

/* Tries again with one remainder, each time another one. */
void sw_segment_retry_remainder(void);

#endif
