/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/crowd.h"

#include <stddef.h>
#include <string.h>

/* What one address has of all places: three quarters of them where it is alone. */
enum { TIMES_FREE = 3 };

static uint32_t entries_of(uint32_t entries)
{
    return entries > NVT_CROWD_ENTRY_MIN ? entries : NVT_CROWD_ENTRY_MIN;
}

static void crowd_note_older(void **oldest, uint64_t *since_ns, const struct nvt_guest *guest)
{
    if (*oldest && *since_ns <= guest->since_ns)
        return;
    *oldest = guest->user;
    *since_ns = guest->since_ns;
}

void nvt_crowd_add(struct nvt_crowd *crowd, const struct nvt_guest *guest)
{
    const bool is_of_address = !strcmp(guest->address, crowd->address);
    const uint32_t entries = entries_of(guest->entries);
    crowd->count++;
    crowd->count_of_address += is_of_address;
    if (guest->is_ending)
        crowd->ending += entries;
    if (guest->is_proven || guest->is_ending)
        return;
    crowd->unproven += entries;
    crowd_note_older(&crowd->oldest, &crowd->since_ns, guest);
    if (!is_of_address)
        return;
    crowd->unproven_of_address += entries;
    crowd_note_older(&crowd->oldest_of_address, &crowd->since_of_address_ns, guest);
}

bool nvt_crowd_admits(const struct nvt_crowd *crowd, void **leaves)
{
    const uint32_t entries = entries_of(crowd->entries);
    *leaves = NULL;
    if (crowd->unproven + crowd->ending + entries > NVT_CROWD_ENDING)
        return false; /* until those have gone that are asked to */
    if (crowd->count >= crowd->places) {
        *leaves = crowd->oldest;
        return false;
    }
    if (crowd->count_of_address &&
        crowd->count_of_address + 1 > TIMES_FREE * (crowd->places - crowd->count - 1)) {
        *leaves = crowd->oldest_of_address;
        return false;
    }
    if (crowd->unproven_of_address + entries > NVT_CROWD_OF_ADDRESS)
        *leaves = crowd->oldest_of_address;
    else if (crowd->unproven + entries > NVT_CROWD_MAX)
        *leaves = crowd->oldest;
    return true;
}
