/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Delayed ACKs. A program that polls a message usually answers it with its next call. An ACK sent
 * before that would make both late; sent with the answer, it costs nothing. The same is true of a
 * program that waits for a peer to write its memory and then always posts a request. So the ACK of
 * a few packets, such as a storage target's answer (a WRITE and a SEND), waits until the
 * program posts, or some polls found nothing new, or more packets have come, or the engine looks
 * after it, which it does within a millisecond. A program for which the engine has had to is not
 * waited for, for a message, and each time that it is in vain again for twice as many. A program
 * that sleeps, and is woken for a message, is waited for if it has answered such before.
 *
 * The ACK then stands behind the request, being shorter; among ourselves it is looked at first
 * (rx.c), as the peer had executed the one before it sent the other.
 */
#include "link/roce/qp/delayed_ack.h"

#include <assert.h>

#include "base/clock.h"
#include "device/queue/qp_impl.h"
#include "link/roce/port/tx.h"
#include "link/roce/qp/qp.h"
#include "link/roce/roce.h"

#define ROOM 16u
#define PACKETS_MAX 16u       /* of a QP, until they are acknowledged: half of the first window */
#define ECHO_PACKETS_MAX 128u /* the same where the program is expected to answer */
#define POLLS_MAX 4u          /* that found nothing, before it is said */
#define LATE_NS (50 * SW_NS_PER_US)
#define WAKE_NS (50 * SW_NS_PER_US) /* which a program takes that has to be woken first */
#define ECHO_NS (60 * SW_NS_PER_US) /* from a peer's request to what it made the program post */
#define ECHOES_MIN 4u               /* in a row, for that to be expected */

/* Up to 64 messages. */
static const struct sw_backoff_rule vain_waits = {.first = 1, .doublings_max = 6};

static struct {
    struct sw_qp *qps[ROOM];
    atomic_uint count;
    uint32_t polls;             /* without success, since the last was added */
    _Atomic uint64_t since_ns;  /* when the last was added */
    _Atomic uint64_t minded_ns; /* the same as of the engine's last look */
} delayed;                      /* under rx_lock */

static bool expects_echo(const struct sw_roce_qp *r)
{
    return r->echoes >= ECHOES_MIN;
}

void sw_delayed_ack_note_echo(struct sw_roce_qp *r, uint64_t now_ns)
{
    if (!r->reached_ns)
        return;
    if (now_ns >= r->reached_ns + ECHO_NS)
        r->echoes = 0;
    else if (r->echoes < ECHOES_MIN)
        r->echoes++;
    r->reached_ns = 0;
}

bool sw_delayed_ack_expects_echo(struct sw_roce_qp *r, bool wakes, uint64_t now_ns)
{
    sw_lock_assert_held(&r->qp->lock);
    if (r->reached_ns && now_ns >= r->reached_ns + ECHO_NS) /* it did not answer those before */
        r->echoes = 0;
    if (!r->reached_ns || !r->echoes)
        r->reached_ns = now_ns + (wakes ? WAKE_NS : 0);
    return expects_echo(r);
}

/* It stays in the list when its ACK has left with a message. */
static bool is_listed(const struct sw_qp *qp)
{
    for (uint32_t i = 0; i < delayed.count; i++)
        if (delayed.qps[i] == qp)
            return true;
    return false;
}

bool sw_delayed_ack_defer(struct sw_roce_qp *r, uint32_t packets, bool wakes, uint64_t now_ns)
{
    sw_lock_assert_held(&sw_roce.port.rx_lock);
    sw_lock_assert_held(&r->qp->lock);
    assert(packets <= SW_DELAYED_ACK_ECHO_RUN);
    if (!r->responder.peer_selective)
        return false; /* it may not look at the ACK before the request that it follows */
    if (!r->ring)
        return false; /* an XRC target QP, whose program answers by another one */
    const struct sw_sq *sq = &r->qp->sq;
    const bool has_more = r->posted != sq->tail || sw_requester_has_unsent(&r->requester);
    const bool may_wait = sw_responder_only_acks(&r->responder) ||
                          (expects_echo(r) && sw_responder_only_misses(&r->responder));
    if (has_more || !may_wait)
        return false;
    if (r->delayed_acks) {
        r->delayed_acks += (uint8_t)packets;
        return r->delayed_acks <= (expects_echo(r) ? ECHO_PACKETS_MAX : PACKETS_MAX);
    }
    if (sw_backoff_skips(&r->ack_backoff))
        return false;
    if (!is_listed(r->qp)) {
        if (delayed.count == ROOM)
            return false;
        delayed.qps[delayed.count++] = r->qp;
    }
    delayed.polls = 0;
    delayed.since_ns = now_ns + (wakes ? WAKE_NS : 0);
    r->delayed_acks = (uint8_t)packets;
    return true;
}

bool sw_delayed_ack_any_waits(void)
{
    return delayed.count;
}

bool sw_delayed_ack_any_unseen(void)
{
    return atomic_load_explicit(&delayed.count, memory_order_relaxed) &&
           atomic_load(&delayed.since_ns) != atomic_load(&delayed.minded_ns);
}

uint64_t sw_delayed_ack_step(uint64_t now_ns)
{
    sw_lock_assert_held(&sw_roce.port.rx_lock);
    atomic_store(&delayed.minded_ns, atomic_load(&delayed.since_ns));
    if (delayed.count && now_ns >= delayed.since_ns + LATE_NS)
        sw_delayed_ack_send(true);
    return delayed.count ? delayed.since_ns + LATE_NS : UINT64_MAX;
}

void sw_delayed_ack_note_empty_poll(void)
{
    if (delayed.count && ++delayed.polls >= POLLS_MAX)
        sw_delayed_ack_send(false);
}

static void delayed_send_ack(struct sw_qp *qp, bool is_late)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_roce_qp *r = qp->link == &sw_roce_qp_ops ? qp->link_state : NULL;
    if (!r || !r->delayed_acks)
        return;
    r->delayed_acks = 0;
    if (is_late) {
        sw_backoff_fail_turn(&r->ack_backoff, &vain_waits);
        r->echoes = 0;
    }
    qp->link->progress(qp);
}

void sw_delayed_ack_send(bool is_late)
{
    sw_lock_assert_held(&sw_roce.port.rx_lock);
    uint32_t kept = 0;
    sw_batch_gather(&sw_roce.port);
    for (uint32_t i = 0; i < delayed.count; i++) {
        struct sw_qp *qp = delayed.qps[i];
        if (sw_lock_try(&qp->lock)) {
            delayed_send_ack(qp, is_late);
            sw_lock_release(&qp->lock);
        } else {
            delayed.qps[kept++] = qp;
        }
    }
    sw_batch_gather_end();
    delayed.count = kept;
}

void sw_delayed_ack_fork_child(void)
{
    delayed.count = 0; /* they are the parent's to say */
}

void sw_delayed_ack_forget(const struct sw_qp *qp)
{
    sw_lock_assert_held(&sw_roce.port.rx_lock);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < delayed.count; i++)
        if (delayed.qps[i] != qp)
            delayed.qps[kept++] = delayed.qps[i];
    delayed.count = kept;
}
