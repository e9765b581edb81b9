/* SPDX-License-Identifier: BSD-2-Clause */
/* Chains: posted in their order, ended, and sorted out when the connection is lost. */
#include <assert.h>
#include <string.h>

#include "pmem/client/machine.h"

static struct pmc_slot *slot_at(struct sw_pmem *p, uint64_t index)
{
    return &p->slots[index % p->options.chains];
}

static void client_end_chain(struct sw_pmem *p, struct pmc_slot *slot, enum sw_pmem_status status,
                             uint32_t failed)
{
    const struct sw_pmem_result result = {
        .status = status, .failed = failed, .session = p->info.session, .arg = slot->arg};
    assert(!slot->is_over);
    slot->is_over = true;
    while (p->ended < p->tail && slot_at(p, p->ended)->is_over)
        p->ended++;
    if (p->posted < p->ended)
        p->posted = p->ended;
    p->ended_in_poll++;
    if (slot->done)
        slot->done(result.arg, &result);
    else
        p->results[p->results_tail++ % p->options.chains] = result;
}

/* Keys of the session, so that it is checked as late as that. */
static void post_one(struct sw_pmem *p, struct pmc_slot *slot)
{
    if (slot->session && slot->session != p->info.session)
        return client_end_chain(p, slot, slot->has_left ? SW_PMEM_MAYBE_DONE : SW_PMEM_NEW_SESSION,
                                0);
    for (uint32_t i = 0; i < slot->count; i++) {
        const enum sw_pmem_status status = pmc_check_op(p, &slot->ops[i], &slot->ranges[i]);
        if (status)
            return client_end_chain(p, slot, slot->has_left ? SW_PMEM_MAYBE_DONE : status, i);
    }
    struct pmc_request requests[SW_PMEM_CHAIN_MAX];
    const bool had_left = slot->has_left;
    pmc_make_requests(p, slot, requests);
    slot->has_left = true;
    slot->posted_ns = p->port->now_ns();
    p->is_broken = !p->port->post(p, requests, slot->count);
    if (p->is_broken) {
        slot->has_left = had_left; /* it still waits */
        p->posted--;
        return;
    }
    for (uint32_t i = 0; i < slot->count; i++)
        p->flushed |= slot->ops[i].opcode == SW_PMEM_OP_FLUSH;
}

void pmc_post_waiting(struct sw_pmem *p)
{
    while (p->state == SW_PMEM_LIVE && !p->is_broken && p->posted < p->tail) {
        struct pmc_slot *slot = slot_at(p, p->posted++);
        if (!slot->is_over)
            post_one(p, slot);
    }
}

enum sw_pmem_status sw_pmem_post(struct sw_pmem *p, const struct sw_pmem_chain *chain)
{
    if (!chain->count || chain->count > SW_PMEM_CHAIN_MAX)
        return SW_PMEM_INVALID;
    if (mover_is_forked(&p->guard))
        return SW_PMEM_FORKED;
    if (p->state == SW_PMEM_DEAD)
        return p->error.status;
    if (sw_pmem_used(p) >= p->options.chains || p->tail - p->ended >= p->options.chains)
        return SW_PMEM_AGAIN;
    if (chain->session && chain->session != p->info.session)
        return SW_PMEM_NEW_SESSION;
    struct pmc_slot *slot = slot_at(p, p->tail);
    for (uint32_t i = 0; i < chain->count && p->info.session; i++) {
        const enum sw_pmem_status status = pmc_check_op(p, &chain->ops[i], &slot->ranges[i]);
        if (status)
            return status;
    }
    memcpy(slot->ops, chain->ops, chain->count * sizeof(*chain->ops));
    slot->count = chain->count;
    slot->flags = chain->flags;
    slot->session = chain->session;
    slot->done = chain->done;
    slot->arg = chain->arg;
    slot->has_left = slot->is_over = false;
    slot->failure = SW_PMEM_OK;
    slot->failed = 0;
    p->tail++;
    pmc_post_waiting(p);
    return SW_PMEM_OK;
}

void pmc_completed(struct sw_pmem *p, uint64_t id, enum sw_pmem_status status, const char *why)
{
    const uint32_t op = id & 7;
    assert(id >> 3 < p->options.chains && op < p->slots[id >> 3].count);
    struct pmc_slot *slot = &p->slots[id >> 3];
    if (status == SW_PMEM_OK) {
        if (op + 1 == slot->count)
            client_end_chain(p, slot, SW_PMEM_OK, 0);
        return;
    }
    if (status == SW_PMEM_DISK_FAILED && slot->ops[op].opcode != SW_PMEM_OP_FLUSH)
        status = SW_PMEM_SYSTEM;
    slot->failure = status == SW_PMEM_UNREACHABLE ? SW_PMEM_OK : status;
    slot->failed = op;
    if (status == SW_PMEM_DISK_FAILED)
        return pmc_lost(p, status, "%s could not flush: its disk failed", p->where);
    pmc_lost(p, SW_PMEM_UNREACHABLE, "%s does not answer (%s)", p->where, why);
}

static bool may_repeat(const struct pmc_slot *slot)
{
    if (slot->flags & SW_PMEM_REPEAT)
        return true;
    for (uint32_t i = 0; i < slot->count; i++)
        if (slot->ops[i].opcode != SW_PMEM_OP_READ)
            return false;
    return true;
}

/* The queue pair is gone. Callbacks may post: those chains lie behind `tail` as it is now. */
void pmc_sort_out(struct sw_pmem *p)
{
    const uint64_t until = p->posted;
    for (uint64_t i = p->ended; i < until; i++) {
        struct pmc_slot *slot = slot_at(p, i);
        if (i < p->ended || slot->is_over)
            continue;
        if (slot->failure)
            client_end_chain(p, slot, slot->failure, slot->failed);
        else if (slot->has_left && !may_repeat(slot))
            client_end_chain(p, slot, SW_PMEM_MAYBE_DONE, 0);
    }
    p->posted = p->ended;
}

void pmc_end_all(struct sw_pmem *p, enum sw_pmem_status status)
{
    const uint64_t until = p->tail;
    for (uint64_t i = p->ended; i < until; i++) {
        struct pmc_slot *slot = slot_at(p, i);
        if (i < p->ended || slot->is_over)
            continue;
        const enum sw_pmem_status left = slot->has_left ? SW_PMEM_MAYBE_DONE : status;
        client_end_chain(p, slot, slot->failure ? slot->failure : left, slot->failed);
    }
}

uint32_t sw_pmem_take(struct sw_pmem *p, struct sw_pmem_result *results, uint32_t results_max)
{
    uint32_t count = 0;
    if (mover_is_forked(&p->guard)) /* results are the parent's to take */
        return 0;
    while (count < results_max && p->results_taken < p->results_tail)
        results[count++] = p->results[p->results_taken++ % p->options.chains];
    return count;
}

uint32_t sw_pmem_depth(const struct sw_pmem *p)
{
    return p->options.chains;
}

uint32_t sw_pmem_used(const struct sw_pmem *p)
{
    return (uint32_t)(p->tail - p->ended + (p->results_tail - p->results_taken));
}
