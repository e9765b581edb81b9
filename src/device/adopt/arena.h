/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The files that adopted segments lie in: one of its own, or an arena, a file of many. A descriptor
 * is always of the whole file, so an arena is of segments that peers may map alike, and is never
 * handed out for more; a segment whose rights grow beyond is reached by cma.
 *
 * A place in an arena is used once: a peer that was stopped in the middle of a store and wakes up
 * when the segment is gone stores to a place that nobody has. The files are sparse, and as large as
 * that takes.
 *
 * All with the move lock held, but for sw_arena_handed().
 */
#ifndef SW_DEVICE_ADOPT_ARENA_H
#define SW_DEVICE_ADOPT_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "device/adopt/adopt.h"
#include "device/adopt/segment.h"
#include "device/rules/pub.h"

/* Whether there is a file for one more segment that peers may map so from the beginning. There is
 * none where peers may do so one day or never, and files of their own have run out. */
bool sw_arena_admits(enum sw_handed_out handed);
/* Gives a segment of known va and len_bytes a place in a file, in which its pages lie as they do in
 * large pages of memory. SW_ADOPT_OK or why not. */
enum sw_adopt_reason sw_arena_enter(struct sw_segment *segment, enum sw_handed_out handed);
/* Frees the memory of the place; the file is closed with its last segment. */
void sw_arena_leave(struct sw_segment *segment);
/* The most that the segment's file is handed out for. Holding a reference on the segment. */
enum sw_handed_out sw_arena_handed(const struct sw_segment *segment);

/* How many descriptors files of single segments may have, so that most stay the program's. */
int sw_arena_files_max(void);
/* The memory of all arenas. */
uint64_t sw_arenas_bytes(void);
/* In a forked child, where they are of the parent. */
void sw_arenas_forget(void);

#endif
