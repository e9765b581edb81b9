/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/processors.h"

#include <sched.h>
#include <unistd.h>

/* A launcher has bound it: how many there are for others is not in its own set. */
struct coll_processors coll_processors_of_this(void)
{
    cpu_set_t set;
    uint32_t first = 0;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) || !CPU_COUNT(&set))
        return (struct coll_processors){.usable = 1};
    if (CPU_COUNT(&set) > 1)
        return (struct coll_processors){.usable = (uint32_t)CPU_COUNT(&set)};
    while (!CPU_ISSET(first, &set))
        first++;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return (struct coll_processors){.bound = first + 1,
                                    .usable = online > 0 ? (uint32_t)online : 1};
}

bool coll_processors_are_short(const struct coll_processors *processors, uint32_t here,
                               uint32_t on_mine)
{
    return here > processors->usable || (processors->bound && on_mine > 1);
}
