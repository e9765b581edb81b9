/* SPDX-License-Identifier: BSD-2-Clause */
/* One registration on its way: going through the mappings of a range and collecting the extents of
 * it that are, or are made, shareable. */
#ifndef SW_DEVICE_ADOPT_WALK_H
#define SW_DEVICE_ADOPT_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "device/adopt/adopt.h"
#include "device/adopt/uffd.h"

struct sw_walk {
    uint64_t va; /* what is asked for: [va, end) */
    uint64_t end;
    enum sw_handed_out handed; /* how peers may map it */
    struct sw_extent *extents;
    int count;
    int max;
    enum sw_adopt_reason why; /* of the largest part left out */
    uint64_t why_bytes;
    enum sw_adopt_reason refusal; /* why no private memory can be adopted at all; OK: it can */
    bool ready;                   /* refusal is known; if it is OK uffd is open */
    struct sw_uffd uffd;
};

/* Fills extents, count, max, why. With the move lock held; closes what it opened. */
void sw_walk_all(struct sw_walk *w);

/* What it means for adoption that sw_uffd_open() failed with `err`. */
enum sw_adopt_reason sw_uffd_reason(int err);

#endif
