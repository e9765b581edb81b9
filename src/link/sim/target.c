/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/sim/target.h"

#include <string.h>

static const struct sw_verdict_rule *rules_of(const struct sw_sim_qp *qp)
{
    return qp->responder.config.service == SW_SERVICE_UC ? sw_verdict_rules_uc : sw_verdict_rules;
}

static struct sw_target_qp side_of(const struct sw_sim_qp *qp)
{
    return (struct sw_target_qp){qp->qpn, SW_SIM_PD, qp->access};
}

static enum sw_verdict check_access(const struct sw_sim_qp *qp, uint64_t addr, uint64_t len_bytes,
                                    uint32_t rkey, uint32_t need)
{
    const struct sw_pub_mr *mr;
    uint64_t word;
    if (len_bytes == 0)
        return sw_target_check_empty(need, qp->access);
    return sw_target_check(qp->host->pub, rkey, addr, len_bytes, need, side_of(qp), &mr, &word);
}

enum sw_verdict sw_sim_may_read(const struct sw_sim_qp *qp, uint64_t addr, uint64_t len_bytes,
                                uint32_t rkey)
{
    return check_access(qp, addr, len_bytes, rkey, IBV_ACCESS_REMOTE_READ);
}

enum sw_access_fault sw_sim_read_fault(const struct sw_sim_qp *qp, uint64_t addr,
                                       uint64_t len_bytes, uint32_t rkey)
{
    return sw_target_fault(qp->host->pub, rkey, addr, len_bytes, IBV_ACCESS_REMOTE_READ,
                           side_of(qp));
}

enum sw_verdict sw_sim_may_invalidate(const struct sw_sim_qp *qp, uint32_t rkey)
{
    return sw_target_check_invalidate(qp->host->pub, rkey, side_of(qp));
}

static void tell_receive(struct sw_sim_qp *qp, const struct sw_sim_receive *receive,
                         enum ibv_wc_status status, uint32_t byte_len,
                         const struct sw_demand *demand)
{
    struct sw_sim_completion wc = {
        .is_receive = true, .id = receive->id, .status = status, .byte_len = byte_len};
    if (demand) {
        wc.has_imm = demand->has_imm;
        wc.imm = demand->imm_be;
    }
    qp->complete(qp, &wc);
}

static bool take_receive(struct sw_sim_qp *qp)
{
    if (!qp->claimed && qp->receive_head != qp->receive_tail) {
        qp->claim = qp->receives[qp->receive_head++ % SW_SIM_RECEIVES];
        qp->claimed = true;
    }
    return qp->claimed;
}

static enum sw_verdict do_send(struct sw_sim_qp *qp, const struct sw_demand *demand)
{
    if (demand->first) {
        if (!take_receive(qp))
            return SW_RNR;
        qp->claim_used = 0;
    }
    if (!qp->claimed || demand->offset != qp->claim_used)
        return SW_NAK_INVALID;
    const enum sw_verdict verdict =
        sw_target_check_room(qp->claim.len_bytes, qp->claim_used, demand->len_bytes);
    if (verdict != SW_ACK)
        return verdict;
    memcpy(sw_sim_host_at(qp->host, qp->claim.addr + qp->claim_used), demand->payload,
           demand->len_bytes);
    qp->claim_used += demand->len_bytes;
    if (demand->last) {
        qp->claimed = false;
        tell_receive(qp, &qp->claim, IBV_WC_SUCCESS, qp->claim_used, demand);
    }
    return SW_ACK;
}

static enum sw_verdict do_write(struct sw_sim_qp *qp, const struct sw_demand *demand)
{
    enum sw_verdict verdict =
        check_access(qp, demand->addr, demand->len_bytes, demand->rkey, IBV_ACCESS_REMOTE_WRITE);
    if (verdict != SW_ACK)
        return verdict;
    bool consumes = demand->last && demand->has_imm;
    if (consumes && !take_receive(qp))
        return SW_RNR;
    if (demand->len_bytes)
        memcpy(sw_sim_host_at(qp->host, demand->addr), demand->payload, demand->len_bytes);
    if (consumes) {
        qp->claimed = false;
        tell_receive(qp, &qp->claim, IBV_WC_SUCCESS, (uint32_t)demand->total, demand);
    }
    return SW_ACK;
}

static enum sw_verdict do_atomic(struct sw_sim_qp *qp, const struct sw_demand *demand,
                                 uint64_t *original)
{
    bool writes = demand->kind == SW_DEMAND_ATOMIC_WRITE;
    enum sw_verdict verdict =
        check_access(qp, demand->addr, 8, demand->rkey,
                     writes ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_ATOMIC);
    if (verdict != SW_ACK)
        return verdict;
    if (demand->addr % 8)
        return SW_NAK_INVALID;
    uint8_t opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    if (demand->kind == SW_DEMAND_CMP_SWAP)
        opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    if (!writes) {
        *original = sw_target_atomic((uint64_t *)(void *)sw_sim_host_at(qp->host, demand->addr),
                                     opcode, demand->compare_add, demand->swap);
        return SW_ACK;
    }
    memcpy(sw_sim_host_at(qp->host, demand->addr), &demand->compare_add, 8);
    return SW_ACK;
}

/* Of a demand that was refused: what iWARP tells its peer. */
static enum sw_access_fault why_refused(const struct sw_sim_qp *qp, const struct sw_demand *demand)
{
    uint32_t need = IBV_ACCESS_REMOTE_ATOMIC;
    uint64_t len_bytes = 8;
    if (demand->kind == SW_DEMAND_SEND)
        return SW_ACCESS_FAULT_NONE;
    if (demand->kind == SW_DEMAND_WRITE || demand->kind == SW_DEMAND_READ) {
        const bool reads = demand->kind == SW_DEMAND_READ;
        need = reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
        len_bytes = reads ? demand->total : demand->len_bytes;
    }
    return sw_target_fault(qp->host->pub, demand->rkey, demand->addr, len_bytes, need, side_of(qp));
}

struct sw_outcome sw_sim_execute(struct sw_sim_qp *qp, const struct sw_demand *demand)
{
    struct sw_outcome outcome = {0};
    enum sw_verdict verdict = SW_ACK;
    if (demand->kind == SW_DEMAND_SEND)
        verdict = do_send(qp, demand);
    else if (demand->kind == SW_DEMAND_WRITE)
        verdict = do_write(qp, demand);
    else if (demand->kind == SW_DEMAND_READ)
        verdict = sw_sim_may_read(qp, demand->addr, demand->total, demand->rkey);
    else if (demand->kind != SW_DEMAND_FLUSH)
        verdict = do_atomic(qp, demand, &outcome.original);
    const struct sw_verdict_rule *rule = &rules_of(qp)[verdict];
    outcome.syndrome = sw_verdict_rules[verdict].aeth_syndrome;
    outcome.dead = rule->responder_fatal && !demand->duplicate;
    if (verdict != SW_ACK)
        outcome.why = (uint8_t)why_refused(qp, demand);
    return outcome;
}

static void flush_sends(struct sw_sim_qp *qp)
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
    flush_sends(qp);
    if (qp->claimed) {
        qp->claimed = false;
        tell_receive(qp, &qp->claim, IBV_WC_WR_FLUSH_ERR, 0, NULL);
    }
    while (qp->receive_head != qp->receive_tail)
        tell_receive(qp, &qp->receives[qp->receive_head++ % SW_SIM_RECEIVES], IBV_WC_WR_FLUSH_ERR,
                     0, NULL);
}
