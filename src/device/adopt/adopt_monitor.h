/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Follows the calls of madvise(2) that discard adopted memory past our hooks: raw system calls, of
 * an allocator or of libc itself. On shared memory such a call keeps the old bytes.
 *
 * A userfaultfd that tells (device/adopt/uffd.h) holds up the caller before anything is discarded,
 * but its event can only be read by letting him go on, and says before that nothing of where. So
 * the segments are in groups with one userfaultfd each: when that has something to tell, a thread
 * of ours moves all segments of the group back to private memory, and then reads. The kernel looks
 * up anew what is mapped there, and discards private pages. Regions over them go on by the next
 * rung. Where pages may not move, as they may be pinned, those of the callers that can be found
 * (held_calls.h) are discarded in their place.
 *
 * The thread allocates nothing and touches no adopted memory, as the caller may hold all locks of
 * an allocator.
 */
#ifndef SW_DEVICE_ADOPT_ADOPT_MONITOR_H
#define SW_DEVICE_ADOPT_ADOPT_MONITOR_H

#include "device/adopt/segment.h"
#include "device/adopt/uffd.h"

/* Without the move lock: starts the thread, once in a process. */
void sw_adopt_monitor_start(void);

/* With the move lock held. The userfaultfd that tells of calls on this segment, or NULL: the kernel
 * has none (before Linux 5.19), or no descriptor is left, and such calls are not followed. */
const struct sw_uffd *sw_adopt_monitor_of(const struct sw_segment *segment);
unsigned int sw_adopt_monitor_group(const struct sw_segment *segment);

/* How many descriptors it has. */
int sw_adopt_monitor_count(void);

/* In a forked child, which has neither thread nor segments. */
void sw_adopt_monitor_forget(void);

#endif
