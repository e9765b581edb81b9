/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/send/fault_gate.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/step.h"
#include "link/direct/send/receive_credit.h"
#include "link/faults/live.h"
#include "wire/ib_time.h"
#include "wire/psn.h"

/* What a lost packet of a reliable connection costs: about a retransmission timer's least value. */
#define RECOVERY_NS SW_NS_PER_MS

struct sw_fault_gate {
    uint32_t position; /* of the request that was decided on */
    bool decided;
    bool lost;
    bool doubled;
    bool withheld; /* its receive */
    uint64_t release_ns;
    uint64_t cut_ns; /* since when a cut holds a request back */
    uint32_t psn;
};

struct sw_fault_gate *sw_fault_gates;

int sw_fault_gate_start(void)
{
    free(sw_fault_gates);
    sw_fault_gates = NULL;
    if (!sw_faults_live)
        return 0;
    sw_fault_gates = calloc(SW_MAX_QP, sizeof(*sw_fault_gates));
    return sw_fault_gates ? 0 : -ENOMEM;
}

void sw_fault_gate_reset(const struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    if (sw_fault_gates)
        sw_fault_gates[qp->index] = (struct sw_fault_gate){.psn = qp->attr.sq_psn};
}

static uint32_t fault_gate_kind_of(const struct sw_qp *qp, const struct sw_wqe *wqe)
{
    if (qp->rules->is_datagram)
        return SW_FAULT_DATAGRAM;
    switch (wqe->opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
        return SW_FAULT_SEND;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return SW_FAULT_WRITE;
    case IBV_WR_RDMA_READ:
        return SW_FAULT_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return SW_FAULT_ATOMIC;
    default:
        return SW_FAULT_OTHER;
    }
}

static struct sw_fault_packet packet_of(const struct sw_qp *qp, const struct sw_wqe *wqe,
                                        uint32_t psn)
{
    return (struct sw_fault_packet){.qpn = qp->qpn,
                                    .ordinal = qp->ordinal,
                                    .psn = psn & SW_PSN_MASK,
                                    .len_bytes = qp->mtu_bytes,
                                    .kind = fault_gate_kind_of(qp, wqe)};
}

/* Draws what becomes of all packets that the request would be. */
static void fault_gate_decide_fate(const struct sw_qp *qp, const struct sw_wqe *wqe,
                                   struct sw_fault_gate *gate, uint64_t now_ns)
{
    uint64_t elapsed_ns = sw_faults_elapsed_ns(now_ns), held_ns = 0;
    uint32_t mtu_bytes = qp->mtu_bytes ? qp->mtu_bytes : 1;
    uint32_t left = wqe->len_bytes / mtu_bytes + (wqe->len_bytes % mtu_bytes != 0);
    gate->lost = gate->doubled = false;
    do {
        struct sw_fault_action action;
        struct sw_fault_packet packet = packet_of(qp, wqe, gate->psn++);
        if (sw_faults_decide(sw_faults_live, &packet, elapsed_ns, &action)) {
            uint64_t packet_ns = action.delay_ns + action.reorder_ns;
            held_ns = sw_max_u64(packet_ns, held_ns);
            gate->lost |= action.drop || action.corrupt; /* damage is found by the ICRC */
            gate->doubled |= action.duplicate;
        }
    } while (left && --left);
    gate->release_ns = now_ns + held_ns;
    gate->decided = true;
}

/* How long a reliable connection tries before it gives up; UINT64_MAX: for ever. */
static uint64_t patience_ns(const struct sw_qp *qp)
{
    if (qp->attr.timeout == 0)
        return UINT64_MAX;
    return sw_ib_time_ns(qp->attr.timeout) * (qp->attr.retry_cnt + 1u);
}

static enum sw_step cut_request(struct sw_qp *qp, struct sw_direct_qp *d, const struct sw_wqe *wqe,
                                struct sw_fault_gate *gate, uint64_t now_ns)
{
    if (!gate->cut_ns) {
        struct sw_fault_action ignored;
        struct sw_fault_packet packet = packet_of(qp, wqe, gate->psn);
        sw_faults_decide(sw_faults_live, &packet, sw_faults_elapsed_ns(now_ns), &ignored);
        gate->cut_ns = now_ns;
    }
    if (d->rules[SW_UNREACHABLE].lost || now_ns - gate->cut_ns > patience_ns(qp))
        return sw_step_refused(d, SW_UNREACHABLE);
    return SW_STEP_BLOCKED;
}

/* Asks the rules again each time the RNR timer has run out. */
static enum sw_step withhold_request(struct sw_qp *qp, struct sw_direct_qp *d,
                                     struct sw_fault_gate *gate, uint64_t now_ns)
{
    if (gate->withheld &&
        now_ns - d->send.rnr_ns < sw_rnr_timer_ns(SW_PUB_GET(d->remote.entry->min_rnr_timer)))
        return SW_STEP_BLOCKED;
    if (sw_faults_withholds(sw_faults_live, qp->qpn, qp->ordinal, sw_faults_elapsed_ns(now_ns))) {
        gate->withheld = true;
        return sw_receive_absent(qp, d);
    }
    if (gate->withheld) {
        gate->withheld = false;
        d->send.rnr_ns = 0;
        d->send.rnr_tries = 0;
    }
    return SW_STEP_DONE;
}

enum sw_step sw_fault_gate_pass(struct sw_qp *qp, struct sw_direct_qp *d, const struct sw_wqe *wqe,
                                uint32_t position)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_fault_gate *gate = &sw_fault_gates[qp->index];
    if (wqe->via_ring || wqe->done_bytes)
        return SW_STEP_DONE; /* on its way already */
    uint64_t now_ns = sw_clock_ns();
    if (sw_faults_is_cut(sw_faults_live, sw_faults_elapsed_ns(now_ns)))
        return cut_request(qp, d, wqe, gate, now_ns);
    gate->cut_ns = 0;
    if (!gate->decided || gate->position != position) {
        fault_gate_decide_fate(qp, wqe, gate, now_ns);
        gate->position = position;
        if (gate->lost && !d->rules[SW_UNREACHABLE].lost)
            gate->release_ns += RECOVERY_NS;
    }
    if (now_ns < gate->release_ns)
        return SW_STEP_BLOCKED;
    if (gate->lost && d->rules[SW_UNREACHABLE].lost)
        return SW_STEP_LOST;
    if (!sw_wqe_takes_receive(wqe) || !sw_faults_has(sw_faults_live, SW_FAULT_RNR))
        return SW_STEP_DONE;
    return withhold_request(qp, d, gate, now_ns);
}

bool sw_fault_gate_datagram(const struct sw_qp *qp, const struct sw_wqe *wqe, uint32_t position,
                            uint32_t *copies)
{
    struct sw_fault_gate *gate = &sw_fault_gates[qp->index];
    uint64_t now_ns = sw_clock_ns();
    if (!gate->decided || gate->position != position) {
        fault_gate_decide_fate(qp, wqe, gate, now_ns);
        gate->position = position;
    }
    *copies = gate->lost ? 0 : 1 + gate->doubled;
    return now_ns >= gate->release_ns;
}
