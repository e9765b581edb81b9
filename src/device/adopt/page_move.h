/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moves pages in place between private anonymous memory and a segment's file, while other threads
 * use them.
 *
 * Called with the move lock held. From arming a range to waking it, code here touches nothing that
 * could lie in the range: only its own stack and constants (the range never holds those, see
 * device/adopt/thread_memory.h); it allocates nothing, takes no lock, and blocks all signals.
 */
#ifndef SW_DEVICE_ADOPT_PAGE_MOVE_H
#define SW_DEVICE_ADOPT_PAGE_MOVE_H

#include <stdbool.h>
#include <stdint.h>

#include "device/adopt/segment.h"
#include "device/adopt/uffd.h"

/* Reserves the place where the private mapping will wait. 0 or a negative errno. */
int sw_park_reserve(struct sw_segment *segment);
void sw_park_release(struct sw_segment *segment);

/* Moves the segment's whole range, private anonymous memory of protection `prot`, into its file. 0
 * or a negative errno; then *done_bytes from the start have been moved and the rest is as it was.
 */
int sw_pages_take(struct sw_segment *segment, const struct sw_uffd *uffd, int prot,
                  uint64_t *done_bytes);

/* Moves [va, va + len) of the segment, mapped with `prot`, back to private anonymous memory; lean:
 * in small steps, without large pages. 0 or a negative errno; what was not moved is as it was. */
int sw_pages_return(struct sw_segment *segment, const struct sw_uffd *uffd, uint64_t va,
                    uint64_t len_bytes, int prot, bool lean);

/* Whether the mapping at va is locked. */
bool sw_pages_locked(uint64_t va);

/* Puts empty private memory of protection `prot` in the place of [va, va + len), from one moment to
 * the next: what was there is gone, a store made after this is not. 0 or a negative errno; -EINVAL:
 * some of it is locked, and !locked_too. Needs no userfaultfd. */
int sw_pages_discard(struct sw_segment *segment, uint64_t va, uint64_t len_bytes, int prot,
                     bool locked_too);

/* For fork. Copies [va, va + len) of the file to the park, with the protection `prot`: 0 or a
 * negative errno. */
int sw_park_fill(struct sw_segment *segment, uint64_t va, uint64_t len_bytes, int prot);
/* In the child: puts that copy in the place of the shared pages, which no child inherits. */
void sw_park_swap_in(struct sw_segment *segment, uint64_t va, uint64_t len_bytes);
/* Frees the pages of the park. */
void sw_park_drop(const struct sw_segment *segment, uint64_t va, uint64_t len_bytes);
/* madvise(2) on what comes back when [va, va + len) does. */
void sw_park_advise(const struct sw_segment *segment, uint64_t va, uint64_t len_bytes, int advice);

#ifdef SW_TEST_HOOKS
extern bool sw_page_move_unprotected; /* moves without stopping anybody, to prove that the race test
                                         sees it */
#endif

#endif
