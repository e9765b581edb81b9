/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Page adoption: makes a range of this process's own memory mappable by peers, in place.
 *
 * sw_adopt_get() returns the parts ("extents") of [va, va+len) that are backed by shareable file
 * memory:
 *  - memory that already is MAP_SHARED of a file we can get a descriptor for (memfd found among our
 *    own descriptors, /dev/shm, hugetlbfs, DAX or plain files by path) is used as it is;
 *  - whole pages of private anonymous memory are moved into a memfd (stopped by userfaultfd,
 *    UFFD_USER_MODE_ONLY if need be, copied where resident, MAP_FIXED over it, woken), losing no
 *    concurrent store;
 *  - the rest (partial edge pages, stacks, private file mappings, device memory, memory that an
 *    io_uring, vfio or GPU descriptor may have pinned, what exceeds SIDEWIRE_ADOPT_MAX,
 *    SIDEWIRE_ADOPT=never) is left alone and has no extent.
 *
 * Segments are reference-counted: regions that overlap or share pages share segments. The last put
 * moves the pages back into private anonymous memory (same protection in reverse), if they still
 * are what was adopted.
 *
 * Thread-safe. Fork: it installs its own pthread_atfork handlers; the child gets private copies as
 * of the fork (made by the parent, as it enters the clone), of MADV_DONTFORK'd memory nothing, and
 * its segment table starts empty: segments of the parent are dead there, and putting them does
 * nothing.
 *
 * How and why, and the limits: docs/adoption.md.
 */
#ifndef SW_DEVICE_ADOPT_ADOPT_H
#define SW_DEVICE_ADOPT_ADOPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/rules/pub.h"

struct sw_segment; /* one memfd (or foreign file) range mapped at one VA range of this process */

struct sw_extent {
    uint64_t va; /* start in this process */
    uint64_t len_bytes;
    uint64_t offset; /* of `va` within the segment's descriptor */
    struct sw_segment *segment;
};

enum sw_adopt_reason { /* why (part of) a range has no extent; see sw_adopt_reason_str() */
                       SW_ADOPT_OK,
                       SW_ADOPT_DISABLED, /* SIDEWIRE_ADOPT=never */
                       SW_ADOPT_NO_UFFD,  /* userfaultfd refused or without write protection */
                       SW_ADOPT_NO_MEMFD,
                       SW_ADOPT_PARTIAL_PAGE,
                       SW_ADOPT_PINNED,
                       SW_ADOPT_TOO_LARGE,
                       SW_ADOPT_KIND,   /* stack, private file mapping, device memory ... */
                       SW_ADOPT_FAILED, /* a system call failed midway; everything was put back */
};

/* Fills up to `max` extents of what peers may map as `handed` says, in ascending order, taking a
 * reference on each one's segment. Returns their number (0 is fine: nothing is shareable), never
 * fails; *why (may be NULL) is the reason for the largest part left out. */
int sw_adopt_get(uint64_t va, uint64_t len_bytes, enum sw_handed_out handed,
                 struct sw_extent *extents, int max, enum sw_adopt_reason *why);
void sw_adopt_put(struct sw_segment *segment);

uint32_t
sw_segment_id(const struct sw_segment *segment);     /* never 0, not used again soon (increments) */
int sw_segment_fd(const struct sw_segment *segment); /* owned by the segment */
/* Peers may map it so from now on: enum sw_handed_out. */
void sw_segment_grant(struct sw_segment *segment, uint32_t handed);
/* A descriptor for peers, which the caller closes: to write, to read, or -1. */
int sw_segment_hand_out(const struct sw_segment *segment);
/* The byte range of the descriptor that peers should map. */
void sw_segment_file_range(const struct sw_segment *segment, uint64_t *offset, uint64_t *len_bytes);
/* Finds a live segment by id, under a reference the caller puts; NULL if gone. */
struct sw_segment *sw_segment_find(uint32_t id);

/*
 * Adopted memory is shared memory to the kernel, where a program's madvise() or mremap() means
 * something else. So the hooks of such calls ask first; they do not allocate, as an allocator may
 * be what calls. Ranges are of whole pages. Regions over them are reached by lower rungs from then
 * on.
 */
/* Lock-free where nothing near is adopted. False for the thread that moves pages. */
bool sw_adopt_may_overlap(uint64_t va, uint64_t len_bytes);
/* Moves what is adopted of the range back to private memory. False: some of it stays shared, as it
 * may be pinned. */
bool sw_adopt_withdraw(uint64_t va, uint64_t len_bytes);
/* Puts empty private memory in its place, up to the first locked part, unless locked_too. When this
 * returns, a store to the range stays. */
void sw_adopt_discard(uint64_t va, uint64_t len_bytes, bool locked_too);
/* Changes with each time that pages may have moved; waits while they do. */
unsigned int sw_adopt_moves(void);
/* Advises the private mapping that comes back one day, and what is private in the range. */
void sw_adopt_advise(uint64_t va, uint64_t len_bytes, int advice);
/* From now on mappings are looked at for MADV_DONTDUMP before they are adopted. */
void sw_adopt_dump_advised(void);

/* Called before pages of this process move, and after; with a lock held under which nothing else
 * moves. `before` returns when no store from outside to the range is on its way and none will
 * start. */
struct sw_adopt_guard {
    /* Before pages are taken from live regions: peers must not map the range any more. */
    void (*revoke)(uint64_t va, uint64_t len_bytes);
    void (*before)(uint64_t va, uint64_t len_bytes);
    void (*after)(void);
};
void sw_adopt_set_guard(const struct sw_adopt_guard *guard);

/* Whether adoption can work in this process at all; tried for real once on a scratch page. */
enum sw_adopt_reason sw_adopt_probe(void);
const char *sw_adopt_reason_str(enum sw_adopt_reason reason);

#endif
