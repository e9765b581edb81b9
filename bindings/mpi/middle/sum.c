/* SPDX-License-Identifier: BSD-2-Clause */
#include "sum.h"

#include <stdlib.h>

/* In place the result of MPI begins where the data began, that of the library lies in this rank's
 * block of it. */
static bool prepare_scatter(struct mpm_work *work, const int *given, struct sw_coll_error *error)
{
    const struct mpm_group *group = work->group;
    struct sw_coll_call *call = &work->call;
    uint64_t offset = group->rank * call->count, own = call->count;
    if (given) {
        uint64_t *counts = malloc(group->size * sizeof(*counts));
        if (!counts)
            return mpm_lack_memory(error);
        offset = 0;
        for (uint32_t i = 0; i < group->size; i++) {
            counts[i] = (uint64_t)given[i];
            offset += i < group->rank ? counts[i] : 0;
        }
        own = counts[group->rank];
        call->counts = work->counts = counts;
    }
    if (call->send == call->recv) {
        size_t bytes = sw_coll_type_bytes(call->type);
        work->begin = call->recv;
        work->begin_bytes = own * bytes;
        call->recv = (uint8_t *)call->recv + offset * bytes;
    }
    return true;
}

bool mpm_sum_prepare(struct mpm_work *work, const int *counts, struct sw_coll_error *error)
{
    return work->call.kind != SW_COLL_REDUCE_SCATTER || prepare_scatter(work, counts, error);
}
