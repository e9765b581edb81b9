/* SPDX-License-Identifier: BSD-2-Clause */
#include "sum.h"

#include <stdlib.h>
#include <string.h>

#include "move.h"
#include "wait.h"

/* In place the result of MPI begins where the data began, that of the library lies in this rank's
 * block of it. */
static bool scatter_sum(struct mpm_group *group, const struct mpm_sum *sum,
                        struct sw_coll_call *call, struct sw_coll_error *error)
{
    uint64_t *counts = NULL;
    uint64_t offset = group->rank * sum->count, own = sum->count;
    if (sum->counts) {
        counts = malloc(group->size * sizeof(*counts));
        if (!counts)
            return mpm_lack_memory(error);
        offset = 0;
        for (uint32_t i = 0; i < group->size; i++) {
            counts[i] = (uint64_t)sum->counts[i];
            offset += i < group->rank ? counts[i] : 0;
        }
        own = counts[group->rank];
    }
    call->counts = counts;
    bool is_in_place = sum->send == sum->recv;
    size_t bytes = sw_coll_type_bytes(sum->type);
    if (is_in_place)
        call->recv = (uint8_t *)sum->recv + offset * bytes;
    bool is_done = mpm_wait(group, call, error);
    if (is_done && is_in_place && own)
        memmove(sum->recv, call->recv, own * bytes);
    free(counts);
    return is_done;
}

bool mpm_sum_run(struct mpm_group *group, const struct mpm_sum *sum, struct sw_coll_error *error)
{
    struct sw_coll_call call = {.kind = sum->kind,
                                .type = sum->type,
                                .op = sum->op,
                                .root = sum->root,
                                .send = sum->send,
                                .recv = sum->recv,
                                .count = sum->count};
    if (sum->kind == SW_COLL_REDUCE_SCATTER)
        return scatter_sum(group, sum, &call, error);
    return mpm_wait(group, &call, error);
}
