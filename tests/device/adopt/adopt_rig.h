/* SPDX-License-Identifier: BSD-2-Clause */
/* How the tests of page adoption adopt memory. */
#ifndef SW_TESTS_ADOPT_RIG_H
#define SW_TESTS_ADOPT_RIG_H

#include "adopt_check.h"
#include "device/adopt/adopt.h"

/* The extents of the last call. */
extern struct sw_extent extents[EXTENTS_MAX];

/* Adopts; the number of extents. */
int adopt_range(const void *base, size_t len, enum sw_adopt_reason *why);
/* Adopts what becomes exactly one extent; NULL: it does not. For children, too, which cannot fail a
 * test. */
struct sw_segment *adopt_one(const void *base, size_t len);
/* Adopts what must become exactly one extent, all of it. */
struct sw_segment *adopt_whole(const void *base, size_t len);
/* Whether this kernel adopts nothing, which is printed as the reason to skip the test. */
bool adopt_is_refused(void);

#endif
