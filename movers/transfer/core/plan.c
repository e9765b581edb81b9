/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/core/plan.h"

#include <assert.h>
#include <stdlib.h>

bool xfc_plan_make(struct xfc_plan *plan, uint32_t requests_max, uint32_t pieces_per_request)
{
    *plan =
        (struct xfc_plan){.requests_max = requests_max, .pieces_per_request = pieces_per_request};
    plan->requests = calloc(requests_max, sizeof(*plan->requests));
    plan->pieces = calloc(requests_max, sizeof(*plan->pieces));
    if (plan->requests && plan->pieces)
        return true;
    xfc_plan_free(plan);
    return false;
}

void xfc_plan_free(struct xfc_plan *plan)
{
    free(plan->requests);
    free(plan->pieces);
    *plan = (struct xfc_plan){.requests = NULL};
}

void xfc_plan_clear(struct xfc_plan *plan)
{
    plan->requests_count = plan->pieces_count = plan->blocks = 0;
    plan->bytes = 0;
}

/* The pair lies behind the last request on the remote side, and that has room for it. */
static bool join_last(struct xfc_plan *plan, const struct xfc_pair *pair)
{
    if (!plan->requests_count)
        return false;
    struct xfc_request *last = &plan->requests[plan->requests_count - 1];
    struct ibv_sge *piece = &plan->pieces[plan->pieces_count - 1];
    if (last->key != pair->remote_key || last->remote + last->bytes != pair->remote ||
        pair->bytes > XFC_REQUEST_BYTES_MAX - last->bytes)
        return false;
    const bool is_behind =
        piece->addr + piece->length == pair->local && piece->lkey == pair->local_key;
    if (!is_behind && last->pieces == plan->pieces_per_request)
        return false;
    if (is_behind) {
        piece->length += (uint32_t)pair->bytes;
    } else {
        plan->pieces[plan->pieces_count++] = (struct ibv_sge){
            .addr = pair->local, .length = (uint32_t)pair->bytes, .lkey = pair->local_key};
        last->pieces++;
    }
    last->bytes += (uint32_t)pair->bytes;
    last->blocks_done = last->blocks_begun = plan->blocks + 1;
    return true;
}

static void add_requests(struct xfc_plan *plan, const struct xfc_pair *pair)
{
    for (uint64_t done = 0; done < pair->bytes;) {
        const uint64_t left = pair->bytes - done;
        const uint32_t bytes =
            left < XFC_REQUEST_BYTES_MAX ? (uint32_t)left : (uint32_t)XFC_REQUEST_BYTES_MAX;
        assert(plan->requests_count < plan->requests_max);
        plan->requests[plan->requests_count++] =
            (struct xfc_request){.remote = pair->remote + done,
                                 .key = pair->remote_key,
                                 .bytes = bytes,
                                 .first_piece = plan->pieces_count,
                                 .pieces = 1,
                                 .blocks_done = plan->blocks + (left == bytes),
                                 .blocks_begun = plan->blocks + 1};
        plan->pieces[plan->pieces_count++] =
            (struct ibv_sge){.addr = pair->local + done, .length = bytes, .lkey = pair->local_key};
        done += bytes;
    }
}

void xfc_plan_add(struct xfc_plan *plan, const struct xfc_pair *pair)
{
    assert(pair->bytes);
    if (!join_last(plan, pair))
        add_requests(plan, pair);
    plan->blocks++;
    plan->bytes += pair->bytes;
}
