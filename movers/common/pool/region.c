/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/pool/region.h"

#include <sched.h>
#include <stdatomic.h>

bool mover_region_enter(struct mover_region *region)
{
    atomic_fetch_add(&region->givers, 1);
    if (!atomic_load(&region->is_pinned))
        return true;
    mover_region_leave(region);
    return false;
}

void mover_region_leave(struct mover_region *region)
{
    atomic_fetch_sub(&region->givers, 1);
}

void mover_region_pin(struct mover_region *region)
{
    atomic_store(&region->is_pinned, true);
    while (atomic_load(&region->givers))
        sched_yield(); /* those who give pages back do so in slices */
}
