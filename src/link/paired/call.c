/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/paired/call.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/minmax.h"
#include "device/queue/counters.h"
#include "link/engine.h"
#include "link/iwarp/socket.h"
#include "link/paired/paired.h"
#include "link/paired/socket.h"
#include "link/paired/trial.h"

#define GAP_NS SW_NS_PER_MS /* between calls; each time twice as long */
#define GAP_MAX_NS (100 * SW_NS_PER_MS)
#define CONNECT_NS SW_NS_PER_S
#define TRIAL_GAP_NS (10 * SW_NS_PER_MS) /* UDP may pass, and the peer takes its time */
#define TRIAL_GAP_MAX_NS (5 * SW_NS_PER_S)
#define READY_NS (2 * SW_NS_PER_MS)      /* in RTR: most are in RTS by then, or were called */
#define LEFT_GAP_NS (200 * SW_NS_PER_MS) /* rdma_cm's word has mostly come by then */
#define LEFT_GAP_MAX_NS (5 * SW_NS_PER_S)
#define PATIENCE_NS (50 * SW_NS_PER_MS) /* with a reply, at first: its process may be stopped */
#define PATIENCE_MAX_NS SW_NS_PER_S
#define REPLY_BYTES 4096u /* the reply, and what is behind it */

void sw_paired_drop_call(struct sw_paired *p)
{
    if (p->fd < 0)
        return;
    sw_engine_unwatch(p->fd);
    close(p->fd);
    p->fd = -1;
    sw_paired_tell_trial(p, SW_FALLBACK_MISSED);
}

/* That a queue pair in RTR says that it is ready. */
static bool call_says_ready(const struct sw_paired *p)
{
    return p->is_inquiry && !p->outcome.has_begun;
}

/* Nobody is there. A peer that was met there before is dead, unless it may have let go; so is one
 * that has given out the number of a queue pair and does not live any more. A side that only says
 * it is ready has nothing to ask. */
static void miss_peer(struct sw_paired *p, bool is_gone, uint64_t now_ns)
{
    if (((p->was_met && !p->outcome.has_begun) || is_gone) && !p->died_ns && !p->is_trial &&
        !call_says_ready(p))
        p->died_ns = now_ns;
}

static void plan_next_call(struct sw_paired *p, uint64_t now_ns)
{
    const uint64_t first_ns = p->is_inquiry ? LEFT_GAP_NS : p->is_trial ? TRIAL_GAP_NS : GAP_NS;
    const uint64_t last_ns = p->is_inquiry ? LEFT_GAP_MAX_NS
                             : p->is_trial ? TRIAL_GAP_MAX_NS
                                           : GAP_MAX_NS;
    p->gap_ns = p->gap_ns ? sw_min_u64(2 * p->gap_ns, last_ns) : first_ns;
    p->again_ns = call_says_ready(p) ? UINT64_MAX : now_ns + p->gap_ns;
}

void sw_paired_plan_inquiry(struct sw_paired *p, uint64_t now_ns)
{
    p->is_inquiry = true;
    p->gap_ns = 0;
    p->again_ns = now_ns + (p->outcome.has_begun ? LEFT_GAP_NS : READY_NS);
}

void sw_paired_end_inquiry(struct sw_paired *p)
{
    if (!p->is_inquiry)
        return;
    sw_paired_drop_call(p);
    p->is_inquiry = false;
    p->gap_ns = p->again_ns = 0;
}

static void fail_call(struct sw_paired *p, uint64_t now_ns, const char *why)
{
    sw_debug("QP 0x%x: its call was not taken (%s)", p->qp->qpn, why);
    sw_paired_drop_call(p);
    plan_next_call(p, now_ns);
}

void sw_paired_miss_call(struct sw_paired *p, uint64_t now_ns)
{
    if (p->is_trial || p->is_inquiry)
        fail_call(p, now_ns, "no answer");
    else
        sw_paired_drop_call(p);
}

void sw_paired_call(struct sw_paired *p, uint64_t now_ns)
{
    const struct sw_qp *qp = p->qp;
    const struct sw_pairing pairing = {
        .kind = SW_PAIRING_REQUEST,
        .skills = SW_PAIRING_SKILLS,
        .own_qpn = qp->qpn,
        .peer_qpn = qp->dest_qpn,
        .own_psn = p->is_inquiry ? SW_PAIRING_PSN_OPEN : qp->attr.sq_psn,
        .peer_psn = p->is_inquiry ? SW_PAIRING_PSN_OPEN : qp->attr.rq_psn,
        .nonce = p->nonce,
    };
    sw_pairing_encode(&pairing, p->private_data);
    const struct sw_iwarp_start_config config = sw_paired_config(p->private_data);
    sw_iwarp_start_connect(&p->start, &config, now_ns);
    p->start.due_ns = sw_min_u64(p->start.due_ns, now_ns + CONNECT_NS);
    p->called_ns = now_ns;
    p->is_asked = false;
    p->fd = sw_paired_connect(&p->own, &p->peer, p->scope);
    if (p->fd < 0) {
        const int err = -p->fd;
        p->fd = -1;
        fail_call(p, now_ns, strerror(err));
        return;
    }
    void *tag = sw_paired_tag(SW_PAIRED_CALL, qp->index);
    sw_engine_watch(p->fd, tag, SW_WATCH_PAIRED);
    sw_engine_watch_room(p->fd, tag, SW_WATCH_PAIRED, true);
}

/* How long a reply is waited for. The kernel gives the next call to another process, perhaps: eight
 * of ten may be stopped, so there are many calls within the least five seconds. */
static uint64_t reply_patience_ns(struct sw_paired *p, uint64_t now_ns)
{
    p->patience_ns = p->patience_ns ? p->patience_ns + p->patience_ns / 32 : PATIENCE_NS;
    p->patience_ns = sw_min_u64(p->patience_ns, PATIENCE_MAX_NS);
    return sw_max_u64(p->patience_ns, sw_paired_answer_ns(p->fd, p->called_ns, now_ns));
}

/* Whether the request is out. */
static bool call_send_request(struct sw_paired *p, uint64_t now_ns)
{
    const int err = sw_paired_error(p->fd);
    if (err) {
        if (err == ECONNREFUSED)
            miss_peer(p, p->was_met, now_ns);
        fail_call(p, now_ns, strerror(err));
        return false;
    }
    if (!sw_paired_tell_trial(p, SW_FALLBACK_REQUEST)) {
        fail_call(p, now_ns, "UDP brings packets");
        return false;
    }
    const ssize_t sent = sw_iwarp_socket_send(p->fd, p->start.out, p->start.out_len);
    if (sent == -EAGAIN) {
        sw_paired_tell_trial(p, SW_FALLBACK_MISSED);
        return false;
    }
    if (sent != p->start.out_len) { /* it is shorter than any socket's buffer */
        fail_call(p, now_ns, "the request cannot be sent");
        return false;
    }
    p->is_asked = true;
    p->start.due_ns = now_ns + reply_patience_ns(p, now_ns);
    sw_engine_watch_room(p->fd, sw_paired_tag(SW_PAIRED_CALL, p->qp->index), SW_WATCH_PAIRED,
                         false);
    return true;
}

/* The reply has to be to this request, of the queue pair that was meant. */
static bool call_is_right_reply(const struct sw_paired *p)
{
    struct sw_pairing request, reply;
    return sw_pairing_decode(p->private_data, sizeof(p->private_data), &request) &&
           sw_pairing_decode(p->start.peer.private_data, p->start.peer.private_len, &reply) &&
           sw_pairing_agrees(&request, &reply);
}

/* What the peer's host says if the call was not taken. */
static enum sw_pairing_kind refusal_of(const struct sw_paired *p)
{
    struct sw_pairing reply;
    if (p->start.state == SW_IWARP_REJECTED &&
        sw_pairing_decode(p->start.peer.private_data, p->start.peer.private_len, &reply) &&
        reply.nonce == p->nonce)
        return (enum sw_pairing_kind)reply.kind;
    return SW_PAIRING_LATER;
}

void sw_paired_call_ready(struct sw_paired *p, uint64_t now_ns)
{
    uint8_t bytes[REPLY_BYTES];
    if (!p->is_asked && !call_send_request(p, now_ns))
        return;
    const ssize_t got = sw_iwarp_socket_receive(p->fd, bytes, sizeof(bytes));
    if (got == -EAGAIN)
        return;
    if (got <= 0) {
        fail_call(p, now_ns, got ? strerror((int)-got) : "closed");
        return;
    }
    const size_t used = sw_iwarp_start_take(&p->start, bytes, (size_t)got);
    if (p->start.state == SW_IWARP_ASKED)
        return;
    if (p->start.state != SW_IWARP_OPEN || p->is_inquiry || !call_is_right_reply(p)) {
        const enum sw_pairing_kind refusal = refusal_of(p);
        if (refusal == SW_PAIRING_NOBODY || refusal == SW_PAIRING_GONE)
            miss_peer(p, refusal == SW_PAIRING_GONE, now_ns);
        if (!p->is_inquiry)
            sw_counter_add(p->qp->ctx->netdev, SW_TCP_REFUSED);
        fail_call(p, now_ns, p->start.state == SW_IWARP_REJECTED ? "not now" : "no such reply");
        return;
    }
    const int fd = p->fd;
    sw_engine_unwatch(fd);
    p->fd = -1;
    if (sw_paired_begin(p, fd, &p->start, true, bytes + used, (size_t)got - used))
        close(fd);
}
