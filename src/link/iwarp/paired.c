/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a connection of a RoCE device's queue pair does beside that of an iWARP device
 * (transport/iwarp/paired.c): it tells its peer what it has taken, waits where there was no
 * receive, and ends as RoCE's connections do.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "device/queue/counters.h"
#include "link/death.h"
#include "link/engine.h"
#include "link/iwarp/connection.h"
#include "link/iwarp/iwarp.h"
#include "wire/aeth.h"
#include "wire/iwarp/crc32c.h"

#define UNTOLD_MAX 32u /* messages: then they are told, though nothing leaves that could take it */

/* A poller will mostly answer the message that has just come, and the count leaves with that. */
static void plan_count(struct sw_iwarp_connection *c, bool moved)
{
    const uint32_t untold = sw_iwarp_untold(&c->machine);
    if (untold && (!moved || untold >= UNTOLD_MAX || sw_engine_drives(c->qp)))
        sw_iwarp_tell(&c->machine);
}

/* The peer had no receive. */
static enum sw_iwarp_life wait_for_receive(struct sw_iwarp_connection *c)
{
    const struct sw_iwarp_paired *p = &c->machine.paired;
    const uint64_t now_ns = sw_clock_ns();
    if (!p->waits) {
        c->resume_ns = 0;
        return SW_IWARP_ALIVE;
    }
    if (p->is_exhausted) {
        if (c->machine.done != c->machine.sent)
            return SW_IWARP_ALIVE; /* its turn has not come */
        c->send_status = IBV_WC_RNR_RETRY_EXC_ERR;
        return sw_iwarp_fail(c, 0);
    }
    if (!c->resume_ns)
        c->resume_ns = now_ns + sw_rnr_timer_ns(p->rnr_timer);
    if (now_ns >= c->resume_ns) {
        c->resume_ns = 0;
        sw_iwarp_resume(&c->machine);
    }
    return SW_IWARP_ALIVE;
}

enum sw_iwarp_life sw_iwarp_step_paired(struct sw_iwarp_connection *c, bool moved)
{
    if (c->machine.paired.has_left)
        return sw_iwarp_lose_peer(c);
    plan_count(c, moved);
    return wait_for_receive(c);
}

static bool changes_memory(const uint8_t *ulpdu)
{
    const struct sw_rdmap_opcode *opcode = sw_rdmap_opcode_of(ulpdu[1] & 0xf);
    return opcode && opcode->number != SW_RDMAP_READ_REQUEST &&
           opcode->number != SW_RDMAP_READ_RESPONSE;
}

/* A completion comes before that of the answer which the peer's program sent for it. And a READ is
 * answered before what follows it changes what it reads, as long as the kernel has room: without a
 * fence it need not be (IBTA Vol1 10.8.3.3), but RoCE's responders do it so. */
enum sw_iwarp_life sw_iwarp_prepare_paired(struct sw_iwarp_connection *c, const uint8_t *ulpdu)
{
    bool moved;
    c->outcome->has_begun = true;
    if (c->machine.answer_count && !c->is_blocked && changes_memory(ulpdu))
        return sw_iwarp_transmit(c, &moved);
    return sw_iwarp_settle(c);
}

void sw_iwarp_establish(struct sw_iwarp_connection *c)
{
    sw_lock_assert_held(&c->qp->lock);
    struct sw_qp *qp = c->qp;
    c->is_established = true;
    if (qp->state == IBV_QPS_RTR)
        sw_context_event(qp->ctx, IBV_EVENT_COMM_EST, qp->owner);
}

static void note_reset(const struct sw_qp *qp)
{
    sw_info("QP 0x%x: the connection to the peer has ended", qp->qpn);
    sw_counter_add(qp->ctx->netdev, SW_TCP_RESETS);
}

/* One that has let go of this queue pair may have done so in good order: then nothing tells, as on
 * a wire, until a request finds no answer. One that ended without a word is dead: what was asked of
 * it fails, and an idle queue pair a little later, and so all where rdma_cm tells the program first
 * (link/paired/). One that has given up its call before it was answered calls again. */
enum sw_iwarp_life sw_iwarp_lose_peer(struct sw_iwarp_connection *c)
{
    sw_lock_assert_held(&c->qp->lock);
    struct sw_qp *qp = c->qp;
    const bool is_idle = qp->sq.head == qp->sq.tail;
    if (!c->machine.paired.has_left && c->outcome->has_begun)
        note_reset(qp);
    c->outcome->is_dead = !c->machine.paired.has_left && c->outcome->has_begun;
    c->outcome->is_told = c->outcome->is_dead && sw_death_tell(qp);
    if (!c->outcome->is_dead || is_idle || c->outcome->is_told) {
        sw_receive_flush(qp, &c->receive);
        sw_iwarp_disconnect(qp);
        return SW_IWARP_DEAD;
    }
    if (c->send_status == IBV_WC_SUCCESS)
        c->send_status = IBV_WC_RETRY_EXC_ERR;
    return sw_iwarp_fail(c, 0);
}

void sw_iwarp_note_paired_refusal(struct sw_iwarp_connection *c)
{
    const uint16_t cause = c->machine.terminate.cause, where = cause >> 8;
    c->send_status = where == 0x01 || where == 0x11      ? IBV_WC_REM_ACCESS_ERR
                     : cause == SW_TERMINATE_LOCAL       ? IBV_WC_REM_OP_ERR
                     : cause == SW_TERMINATE_CRC         ? IBV_WC_RETRY_EXC_ERR
                     : cause == SW_TERMINATE_CATASTROPHE ? IBV_WC_RETRY_EXC_ERR
                                                         : IBV_WC_REM_INV_REQ_ERR;
    sw_info("QP 0x%x: the peer refused a request, Terminate 0x%04x", c->qp->qpn, cause);
}

/* Requests that were sent are to be taken, or to end: somebody looks at it. */
void sw_iwarp_note_pending(struct sw_iwarp_connection *c)
{
    struct sw_qp *qp = c->qp;
    const bool is_pending = qp->sq.head != qp->sq.tail || sw_iwarp_untold(&c->machine);
    if (atomic_load_explicit(&qp->tx_pending, memory_order_relaxed) == is_pending)
        return;
    atomic_store(&qp->tx_pending, is_pending);
    if (is_pending)
        sw_engine_nudge();
}

void sw_iwarp_change_paired(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_iwarp_connection *c = qp->link_state;
    if (!c)
        return;
    struct sw_iwarp_config *config = &c->machine.config;
    config->ord = qp->attr.max_rd_atomic ? qp->attr.max_rd_atomic : 1;
    if (config->ord > SW_IWARP_DEPTH_MAX)
        config->ord = SW_IWARP_DEPTH_MAX;
    config->ird = SW_IWARP_DEPTH_MAX;
    config->rnr_retry = qp->attr.rnr_retry;
    config->rnr_timer = qp->attr.min_rnr_timer;
    sw_iwarp_pause(&c->machine, qp->state == IBV_QPS_SQD, qp->sq.next - c->offset);
}

static uint32_t paired_write_fpdu(const struct sw_iwarp_connection *c,
                                  const struct sw_iwarp_emission *emission, uint8_t *to)
{
    memcpy(to, emission->head, emission->head_len);
    const uint32_t crc = c->has_crc ? sw_crc32c_add(0, to, emission->head_len) : 0;
    return emission->head_len +
           sw_fpdu_finish(crc, sw_iwarp_ulpdu_len(emission), c->has_crc, to + emission->head_len);
}

uint8_t *sw_iwarp_add_final_fpdus(struct sw_iwarp_connection *c, uint8_t *rest, size_t *len)
{
    struct sw_iwarp_emission emission;
    if (!rest && c->out.first != c->out.count)
        return rest;
    while (sw_iwarp_say_last(&c->machine, &emission)) {
        uint8_t *longer = realloc(rest, *len + SW_IWARP_HEAD_MAX + SW_FPDU_TRAILER_MAX);
        if (!longer)
            return rest;
        rest = longer;
        *len += paired_write_fpdu(c, &emission, rest + *len);
    }
    return rest;
}

void sw_iwarp_tell_at_exit(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_iwarp_connection *c = qp->link_state;
    bool moved;
    if (!c || !sw_iwarp_untold(&c->machine))
        return;
    sw_iwarp_tell(&c->machine);
    sw_iwarp_transmit(c, &moved);
}
