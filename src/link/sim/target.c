/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/sim/target.h"

#include "device/memory/mr_impl.h"
#include "device/queue/cq_impl.h"
#include "device/serve/demand.h"
#include "device/serve/flushing.h"

enum sw_verdict sw_sim_may_read(struct sw_sim_qp *qp, uint64_t addr, uint64_t len_bytes,
                                uint32_t rkey, uint8_t **at)
{
    const struct sw_inbound message = {.pd = qp->device->pd_id};
    sw_lock_acquire(&qp->device->lock);
    const enum sw_verdict verdict =
        sw_execute_check(qp->device, &message, IBV_ACCESS_REMOTE_READ, rkey, addr, len_bytes, at);
    sw_lock_release(&qp->device->lock);
    return verdict;
}

enum sw_access_fault sw_sim_read_fault(const struct sw_sim_qp *qp, uint64_t addr,
                                       uint64_t len_bytes, uint32_t rkey)
{
    const struct sw_demand demand = {
        .kind = SW_DEMAND_READ, .rkey = rkey, .addr = addr, .total = len_bytes};
    return sw_execute_fault_of(qp->device, &demand);
}

/* The receives that have ended, for the program. */
static void target_report(struct sw_sim_qp *qp)
{
    struct ibv_wc wc;
    while (sw_cq_poll(qp->device->recv_cq, 1, &wc) == 1) {
        const bool has_imm = wc.wc_flags & IBV_WC_WITH_IMM;
        const struct sw_sim_completion own = {.is_receive = true,
                                              .id = wc.wr_id,
                                              .status = wc.status,
                                              .byte_len = wc.byte_len,
                                              .has_imm = has_imm,
                                              .imm = has_imm ? wc.imm_data : 0};
        qp->complete(qp, &own);
    }
}

static enum sw_verdict sim_serve_send(struct sw_sim_qp *qp, const struct sw_demand *demand,
                                      const struct sw_inbound *message)
{
    struct sw_receive *receive = &qp->receive;
    if (demand->first && !sw_receive_take(qp->device, receive, message))
        return SW_RNR;
    if (!receive->is_taken)
        return SW_NAK_INVALID;
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    const enum sw_verdict verdict = sw_receive_place(qp->device, receive, message, demand);
    if (verdict != SW_ACK)
        status = sw_receive_refusal(qp->device, verdict);
    const bool is_over = verdict == SW_ACK ? demand->last : status != IBV_WC_SUCCESS;
    const uint64_t len_bytes = verdict == SW_ACK ? demand->offset + demand->len_bytes : 0;
    if (is_over)
        sw_receive_complete(qp->device, receive, message, (uint32_t)len_bytes, IBV_WC_RECV, status);
    return verdict;
}

static enum sw_verdict sim_serve_write(struct sw_sim_qp *qp, const struct sw_demand *demand,
                                       const struct sw_inbound *message)
{
    struct sw_qp *device = qp->device;
    const bool consumes = demand->last && demand->has_imm;
    const struct sw_pieces pieces = {
        .from = demand->payload, .count = 1, .len_bytes = demand->len_bytes};
    enum sw_verdict verdict = SW_ACK;
    uint8_t *va;
    if (demand->first && !demand->last)
        verdict = sw_execute_check(device, message, IBV_ACCESS_REMOTE_WRITE, demand->rkey,
                                   demand->addr, demand->total, &va);
    if (verdict == SW_ACK && consumes && !sw_receive_take(device, &qp->receive, message))
        return SW_RNR;
    if (verdict == SW_ACK)
        verdict =
            sw_execute_write(device, message, demand->rkey, demand->addr, &pieces, demand->last);
    if (verdict == SW_ACK && consumes)
        sw_receive_complete(device, &qp->receive, message, (uint32_t)demand->total,
                            IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS);
    return verdict;
}

/* Memory of the simulator is not persistent, so it is done at once. */
static enum sw_verdict sim_serve_flush(struct sw_sim_qp *qp, const struct sw_demand *demand,
                                       const struct sw_inbound *message)
{
    const struct sw_target_flush flush = sw_demand_flush(demand);
    struct sw_flushing flushing = {0};
    enum sw_verdict verdict;
    const bool is_done = sw_execute_flush(qp->device, message, flush, &flushing, &verdict);
    assert(is_done);
    return verdict;
}

static enum sw_verdict sim_serve_demand(struct sw_sim_qp *qp, const struct sw_demand *demand,
                                        uint64_t *original)
{
    const struct sw_inbound message = sw_demand_inbound(qp->device, demand);
    uint8_t *va;
    switch (demand->kind) {
    case SW_DEMAND_SEND:
        return sim_serve_send(qp, demand, &message);
    case SW_DEMAND_WRITE:
        return sim_serve_write(qp, demand, &message);
    case SW_DEMAND_READ:
        return sw_execute_check(qp->device, &message, IBV_ACCESS_REMOTE_READ, demand->rkey,
                                demand->addr, demand->total, &va);
    case SW_DEMAND_CMP_SWAP:
    case SW_DEMAND_FETCH_ADD:
    case SW_DEMAND_ATOMIC_WRITE:
        return sw_demand_atomic(qp->device, demand, &message, original);
    case SW_DEMAND_FLUSH:
        return sim_serve_flush(qp, demand, &message);
    }
    return SW_NAK_INVALID;
}

struct sw_outcome sw_sim_execute(struct sw_sim_qp *qp, const struct sw_demand *demand)
{
    struct sw_qp *device = qp->device;
    struct sw_outcome outcome = {0};
    sw_lock_acquire(&device->lock);
    sw_mr_serve_begin(device->index);
    const enum sw_verdict verdict = sim_serve_demand(qp, demand, &outcome.original);
    sw_mr_serve_end(device->index);
    sw_lock_release(&device->lock);
    outcome.syndrome = sw_verdict_rules[verdict].aeth_syndrome;
    outcome.dead = sw_verdict_rules_of(device->type)[verdict].responder_fatal && !demand->duplicate;
    if (verdict != SW_ACK)
        outcome.why = (uint8_t)sw_execute_fault_of(device, demand);
    target_report(qp);
    return outcome;
}

static void target_flush_sends(struct sw_sim_qp *qp)
{
    while (qp->reported != qp->requester.tail) {
        struct sw_sim_completion wc = {.id = qp->sends[qp->reported % SW_SIM_SENDS].id,
                                       .status = IBV_WC_WR_FLUSH_ERR};
        qp->reported++;
        qp->complete(qp, &wc);
    }
}

void sw_sim_qp_die(struct sw_sim_qp *qp)
{
    if (qp->dead)
        return;
    qp->dead = true;
    target_flush_sends(qp);
    sw_lock_acquire(&qp->device->lock);
    sw_qp_fail(qp->device, -1);
    sw_lock_release(&qp->device->lock);
    target_report(qp);
}
