/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/core/plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool xfc_plan_make(struct xfc_plan *plan, uint32_t requests_max, uint32_t pieces_per_request,
                   bool has_sums)
{
    assert(pieces_per_request);
    *plan =
        (struct xfc_plan){.requests_max = requests_max, .pieces_per_request = pieces_per_request};
    plan->requests = calloc(requests_max, sizeof(*plan->requests));
    plan->pieces = calloc(requests_max, sizeof(*plan->pieces));
    plan->states = calloc(requests_max, sizeof(*plan->states));
    if (has_sums) {
        plan->sums = calloc(requests_max, sizeof(*plan->sums));
        plan->marks = calloc(requests_max, sizeof(*plan->marks));
    }
    if (plan->requests && plan->pieces && plan->states &&
        (!has_sums || (plan->sums && plan->marks)))
        return true;
    xfc_plan_free(plan);
    return false;
}

void xfc_plan_free(struct xfc_plan *plan)
{
    free(plan->requests);
    free(plan->pieces);
    free(plan->states);
    free(plan->sums);
    free(plan->marks);
    *plan = (struct xfc_plan){.requests = NULL};
}

void xfc_plan_clear(struct xfc_plan *plan)
{
    plan->requests_count = plan->pieces_count = plan->sums_count = plan->blocks = 0;
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

static void plan_add_sums(struct xfc_plan *plan, const struct xfc_pair *pair)
{
    for (uint64_t done = 0; done < pair->bytes;) {
        const uint64_t left = pair->bytes - done;
        const uint32_t bytes =
            left < XFC_REQUEST_BYTES_MAX ? (uint32_t)left : (uint32_t)XFC_REQUEST_BYTES_MAX;
        assert(plan->sums_count < plan->requests_max);
        plan->sums[plan->sums_count++] = (struct xfc_sum){.local = pair->local + done,
                                                          .remote = pair->remote + done,
                                                          .key = pair->remote_key,
                                                          .bytes = bytes,
                                                          .block = plan->blocks,
                                                          .is_last = left == bytes};
        done += bytes;
    }
}

void xfc_plan_add(struct xfc_plan *plan, const struct xfc_pair *pair)
{
    assert(pair->bytes);
    if (plan->sums)
        plan_add_sums(plan, pair);
    if (!join_last(plan, pair))
        add_requests(plan, pair);
    plan->blocks++;
    plan->bytes += pair->bytes;
}

void xfc_plan_restart(struct xfc_plan *plan)
{
    memset(plan->states, XFC_WAITS, plan->requests_count);
    if (plan->marks)
        memset(plan->marks, XFC_UNKNOWN, plan->blocks);
}

bool xfc_plan_mark(struct xfc_plan *plan, uint32_t sum, bool is_alike)
{
    assert(sum < plan->sums_count);
    const struct xfc_sum *of = &plan->sums[sum];
    uint8_t *mark = &plan->marks[of->block];
    if (!is_alike)
        *mark = XFC_DIFFERS;
    else if (of->is_last && *mark != XFC_DIFFERS)
        *mark = XFC_ALIKE;
    return is_alike;
}

/* ---- which blocks are in place ---- */

/* The first request that has bytes of the block. */
static uint32_t find_block(const struct xfc_plan *plan, uint32_t block)
{
    uint32_t low = 0, high = plan->requests_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (plan->requests[middle].blocks_begun > block)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

enum sw_xfer_block_state xfc_plan_block(const struct xfc_plan *plan, uint32_t block)
{
    uint32_t waiting = 0, in_place = 0, count = 0;
    for (uint32_t i = find_block(plan, block); i < plan->requests_count; i++) {
        count++;
        waiting += plan->states[i] == XFC_WAITS;
        in_place += plan->states[i] == XFC_IN_PLACE;
        if (plan->requests[i].blocks_done > block)
            break;
    }
    if (plan->marks && block < plan->blocks && plan->marks[block] == XFC_DIFFERS)
        return SW_XFER_BLOCK_CORRUPT;
    if (waiting == count)
        return SW_XFER_BLOCK_WAITS;
    return in_place == count && (!plan->marks || plan->marks[block] == XFC_ALIKE)
               ? SW_XFER_BLOCK_IN_PLACE
               : SW_XFER_BLOCK_MAYBE;
}

/* A request has the blocks that end in it, and is in place with those before that it continues. */
uint32_t xfc_plan_blocks_done(const struct xfc_plan *plan)
{
    uint32_t done = 0, before = 0;
    bool is_whole = true; /* all requests of the block that is not ended yet */
    for (uint32_t i = 0; plan->marks && i < plan->blocks; i++)
        done += plan->marks[i] == XFC_ALIKE;
    for (uint32_t i = 0; !plan->marks && i < plan->requests_count; i++) {
        is_whole = is_whole && plan->states[i] == XFC_IN_PLACE;
        const uint32_t ended = plan->requests[i].blocks_done - before;
        if (!ended)
            continue;
        done += is_whole ? ended : 0;
        before = plan->requests[i].blocks_done;
        is_whole = true;
    }
    return done;
}
