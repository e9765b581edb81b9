/* SPDX-License-Identifier: BSD-2-Clause */
/* Chains: checked, posted in their order, ended, and sorted out when the connection is lost. */
#include <string.h>

#include "pmem/client/client.h"
#include "sidewire/flush.h"

static struct pmc_slot *slot_at(struct sw_pmem *p, uint64_t index)
{
    return &p->slots[index % p->options.chains];
}

void pmc_end_chain(struct sw_pmem *p, struct pmc_slot *slot, enum sw_pmem_status status,
                   uint32_t failed)
{
    const struct sw_pmem_result result = {
        .status = status, .failed = failed, .session = p->info.session, .arg = slot->arg};
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

/* The first range that covers it all and has the right. */
static const struct pmf_range *find_range(const struct sw_pmem *p, const struct sw_pmem_op *op,
                                          uint64_t bytes)
{
    uint32_t rights = op->opcode == SW_PMEM_OP_READ ? SW_PMEM_READ : SW_PMEM_WRITE;
    if (op->opcode == SW_PMEM_OP_FLUSH && p->info.flush == SW_PMEM_BY_READ)
        rights |= SW_PMEM_READ;
    for (uint32_t i = 0; i < p->info.ranges_count; i++) {
        const struct pmf_range *r = &p->ranges[i];
        if ((r->rights & rights) == rights && op->offset >= r->offset && bytes <= r->bytes &&
            op->offset - r->offset <= r->bytes - bytes)
            return r;
    }
    return NULL;
}

static enum sw_pmem_status check_pieces(const struct sw_pmem_op *op, uint64_t *bytes)
{
    *bytes = 0;
    if (!op->pieces_count || op->pieces_count > SW_PMEM_PIECES_MAX)
        return SW_PMEM_INVALID;
    for (uint32_t i = 0; i < op->pieces_count; i++) {
        const struct sw_pmem_piece *piece = &op->pieces[i];
        const char *data = piece->data;
        if (!piece->mem || data < piece->mem->data || piece->bytes > piece->mem->bytes ||
            (size_t)(data - piece->mem->data) > piece->mem->bytes - piece->bytes)
            return SW_PMEM_NOT_REGISTERED;
        *bytes += piece->bytes;
    }
    return *bytes && *bytes <= SW_PMEM_OP_BYTES_MAX ? SW_PMEM_OK : SW_PMEM_INVALID;
}

/* Also sets the range that the operation uses. */
static enum sw_pmem_status check_op(const struct sw_pmem *p, const struct sw_pmem_op *op,
                                    struct pmf_range *range)
{
    uint64_t bytes = 8;
    enum sw_pmem_status status = SW_PMEM_OK;
    switch (op->opcode) {
    case SW_PMEM_OP_READ:
    case SW_PMEM_OP_WRITE:
        status = check_pieces(op, &bytes);
        break;
    case SW_PMEM_OP_FLUSH:
        bytes = op->bytes;
        if (!bytes || (op->flush != SW_PMEM_FLUSH_VISIBLE && op->flush != SW_PMEM_FLUSH_PERSISTENT))
            status = SW_PMEM_INVALID;
        else if (!(op->flush == SW_PMEM_FLUSH_VISIBLE ? p->info.visible : p->info.persistent))
            status = SW_PMEM_UNSUPPORTED;
        break;
    case SW_PMEM_OP_PUBLISH:
        status = op->offset % 8 ? SW_PMEM_INVALID : SW_PMEM_OK;
        break;
    default:
        status = SW_PMEM_INVALID;
    }
    const struct pmf_range *found = status ? NULL : find_range(p, op, bytes);
    if (!status && !found)
        return SW_PMEM_DENIED;
    if (found)
        *range = *found;
    return status;
}

static uint32_t fill_sges(const struct sw_pmem_op *op, struct ibv_sge *sges)
{
    for (uint32_t i = 0; i < op->pieces_count; i++)
        sges[i] = (struct ibv_sge){.addr = (uintptr_t)op->pieces[i].data,
                                   .length = op->pieces[i].bytes,
                                   .lkey = op->pieces[i].mem->mr->lkey};
    return op->pieces_count;
}

/* An operation as a WRITE or READ, also where that takes another's place. */
struct plain {
    struct ibv_sge sges[SW_PMEM_PIECES_MAX];
    uint32_t count;
    uint64_t remote;
    bool is_read;
};

static struct plain as_plain(struct sw_pmem *p, const struct pmc_slot *slot, uint32_t index)
{
    const struct sw_pmem_op *op = &slot->ops[index];
    struct plain plain = {
        .remote = slot->ranges[index].address + (op->offset - slot->ranges[index].offset),
        .is_read = op->opcode == SW_PMEM_OP_READ || op->opcode == SW_PMEM_OP_FLUSH,
        .count = 1};
    if (op->opcode == SW_PMEM_OP_READ || op->opcode == SW_PMEM_OP_WRITE) {
        plain.count = fill_sges(op, plain.sges);
    } else if (op->opcode == SW_PMEM_OP_FLUSH) {
        plain.remote += op->bytes - 1;
        plain.sges[0] = (struct ibv_sge){
            .addr = (uintptr_t)&p->scratch->sink, .length = 1, .lkey = p->scratch_mr->lkey};
    } else {
        uint64_t *value = &p->scratch->values[(slot - p->slots) * SW_PMEM_CHAIN_MAX + index];
        *value = op->value;
        plain.sges[0] =
            (struct ibv_sge){.addr = (uintptr_t)value, .length = 8, .lkey = p->scratch_mr->lkey};
    }
    return plain;
}

/* A later WRITE might pass a FLUSH or a READ; a fence holds it back. */
static unsigned flags_of(const struct sw_pmem *p, const struct pmc_slot *slot, uint32_t index)
{
    const enum sw_pmem_opcode opcode = slot->ops[index].opcode;
    const bool writes = opcode == SW_PMEM_OP_WRITE || opcode == SW_PMEM_OP_PUBLISH;
    bool flushed = p->info.flush == SW_PMEM_BY_READ;
    for (uint32_t i = 0; i < index; i++)
        flushed |= slot->ops[i].opcode == SW_PMEM_OP_FLUSH;
    return (writes && flushed ? IBV_SEND_FENCE : 0) |
           (index + 1 == slot->count ? IBV_SEND_SIGNALED : 0);
}

static uint64_t wr_id_of(const struct sw_pmem *p, const struct pmc_slot *slot, uint32_t index)
{
    return (uint64_t)(slot - p->slots) << 3 | index;
}

static int post_extended(struct sw_pmem *p, const struct pmc_slot *slot)
{
    struct ibv_qp_ex *qpx = p->link.qpx;
    ibv_wr_start(qpx);
    for (uint32_t i = 0; i < slot->count; i++) {
        const struct sw_pmem_op *op = &slot->ops[i];
        const struct pmf_range *range = &slot->ranges[i];
        const struct plain plain = as_plain(p, slot, i);
        qpx->wr_id = wr_id_of(p, slot, i);
        qpx->wr_flags = flags_of(p, slot, i);
        if (op->opcode == SW_PMEM_OP_FLUSH && p->link.has_flush) {
            ibv_wr_flush(qpx, range->key, range->address + (op->offset - range->offset), op->bytes,
                         op->flush == SW_PMEM_FLUSH_VISIBLE ? IBV_FLUSH_GLOBAL
                                                            : IBV_FLUSH_PERSISTENT,
                         IBV_FLUSH_RANGE);
            continue;
        }
        if (op->opcode == SW_PMEM_OP_PUBLISH && p->link.has_atomic) {
            ibv_wr_atomic_write(qpx, range->key, plain.remote, &op->value);
            continue;
        }
        if (plain.is_read)
            ibv_wr_rdma_read(qpx, range->key, plain.remote);
        else
            ibv_wr_rdma_write(qpx, range->key, plain.remote);
        ibv_wr_set_sge_list(qpx, plain.count, plain.sges);
    }
    return ibv_wr_complete(qpx);
}

static int post_plain(struct sw_pmem *p, const struct pmc_slot *slot)
{
    struct plain plains[SW_PMEM_CHAIN_MAX];
    struct ibv_send_wr wrs[SW_PMEM_CHAIN_MAX], *bad;
    memset(wrs, 0, sizeof(wrs));
    for (uint32_t i = 0; i < slot->count; i++) {
        plains[i] = as_plain(p, slot, i);
        wrs[i].wr_id = wr_id_of(p, slot, i);
        wrs[i].sg_list = plains[i].sges;
        wrs[i].num_sge = (int)plains[i].count;
        wrs[i].opcode = plains[i].is_read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        wrs[i].send_flags = flags_of(p, slot, i);
        wrs[i].wr.rdma.remote_addr = plains[i].remote;
        wrs[i].wr.rdma.rkey = slot->ranges[i].key;
        wrs[i].next = i + 1 < slot->count ? &wrs[i + 1] : NULL;
    }
    return ibv_post_send(p->link.id->qp, wrs, &bad);
}

/* Keys of the session, so that it is checked as late as that. */
static void post_one(struct sw_pmem *p, struct pmc_slot *slot)
{
    if (slot->session && slot->session != p->info.session)
        return pmc_end_chain(p, slot, SW_PMEM_NEW_SESSION, 0);
    for (uint32_t i = 0; i < slot->count; i++) {
        const enum sw_pmem_status status = check_op(p, &slot->ops[i], &slot->ranges[i]);
        if (status)
            return pmc_end_chain(p, slot, slot->has_left ? SW_PMEM_MAYBE_DONE : status, i);
    }
    const bool had_left = slot->has_left;
    slot->has_left = true;
    slot->posted_ns = pmc_now_ns();
    p->link.is_broken = p->link.qpx ? post_extended(p, slot) : post_plain(p, slot);
    if (!p->link.is_broken)
        return;
    slot->has_left = had_left; /* it still waits */
    p->posted--;
}

void pmc_post_waiting(struct sw_pmem *p)
{
    while (p->state == SW_PMEM_LIVE && !p->link.is_broken && p->posted < p->tail) {
        struct pmc_slot *slot = slot_at(p, p->posted++);
        if (!slot->is_over)
            post_one(p, slot);
    }
}

enum sw_pmem_status sw_pmem_post(struct sw_pmem *p, const struct sw_pmem_chain *chain)
{
    if (!chain->count || chain->count > SW_PMEM_CHAIN_MAX)
        return SW_PMEM_INVALID;
    if (p->state == SW_PMEM_DEAD)
        return p->error.status;
    if (sw_pmem_used(p) >= p->options.chains || p->tail - p->ended >= p->options.chains)
        return SW_PMEM_AGAIN;
    if (chain->session && chain->session != p->info.session)
        return SW_PMEM_NEW_SESSION;
    struct pmc_slot *slot = slot_at(p, p->tail);
    for (uint32_t i = 0; i < chain->count && p->info.session; i++) {
        const enum sw_pmem_status status = check_op(p, &chain->ops[i], &slot->ranges[i]);
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

void pmc_chain_completion(struct sw_pmem *p, const struct ibv_wc *wc)
{
    struct pmc_slot *slot = &p->slots[wc->wr_id >> 3];
    const uint32_t op = wc->wr_id & 7;
    if (!wc->status) {
        if (op + 1 == slot->count)
            pmc_end_chain(p, slot, SW_PMEM_OK, 0);
        return;
    }
    enum sw_pmem_status status = SW_PMEM_UNREACHABLE;
    if (wc->status == IBV_WC_REM_ACCESS_ERR)
        status = SW_PMEM_DENIED;
    else if (wc->status == IBV_WC_REM_INV_REQ_ERR)
        status = SW_PMEM_UNSUPPORTED;
    else if (wc->status == IBV_WC_REM_OP_ERR || wc->status == IBV_WC_LOC_PROT_ERR ||
             wc->status == IBV_WC_LOC_QP_OP_ERR)
        status = SW_PMEM_SYSTEM;
    slot->failure = status == SW_PMEM_UNREACHABLE ? SW_PMEM_OK : status;
    slot->failed = op;
    pmc_lost(p, SW_PMEM_UNREACHABLE, "%s does not answer (%s)", p->where,
             ibv_wc_status_str(wc->status));
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
            pmc_end_chain(p, slot, slot->failure, slot->failed);
        else if (slot->has_left && !may_repeat(slot))
            pmc_end_chain(p, slot, SW_PMEM_MAYBE_DONE, 0);
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
        pmc_end_chain(p, slot, slot->failure ? slot->failure : left, slot->failed);
    }
}
