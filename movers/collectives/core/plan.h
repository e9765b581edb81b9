/* SPDX-License-Identifier: BSD-2-Clause */
/* From a call to its table of steps. */
#ifndef SW_COLLECTIVES_PLAN_H
#define SW_COLLECTIVES_PLAN_H

#include "collectives/core/call.h"
#include "collectives/core/step.h"
#include "common/base/minmax.h"

/* How many steps a table may have. */
static inline uint32_t coll_steps_max(uint32_t size)
{
    return 13 * size + 128;
}

/* A chunk of 64 bytes of each leaf, twice; and a payload that is gathered before it is mailed. */
static inline uint64_t coll_scratch_min(uint32_t size, uint32_t eager_bytes)
{
    return mover_max_u64((uint64_t)size * SW_COLL_LEAVES_MAX * 64 * 2, eager_bytes);
}

/* It fits the second level of caches while ranks are few, and chunks have some KiB if they are not.
 */
static inline uint64_t coll_scratch_fit(uint32_t size, uint32_t eager_bytes)
{
    return mover_max_u64(mover_max_u64(256 << 10, (uint64_t)size << 14),
                         coll_scratch_min(size, eager_bytes));
}

/* The call is OK, and `table` has room for coll_steps_max() steps. */
void coll_plan_make(struct coll_table *table, const struct sw_coll_call *call,
                    const struct coll_site *site);

#endif
