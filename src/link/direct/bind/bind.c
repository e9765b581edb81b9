/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Binding: QP to QP. A QP in RTR publishes which block its peer shall write; the peer, once
 * attached, reads that entry, claims the block and from then on checks only that the entry's word
 * has not changed.
 */
#include "link/direct/bind/bind.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sigbus.h"
#include "device/nic/nic.h"
#include "device/queue/qp_impl.h"
#include "device/queue/traffic.h"
#include "device/queue/xrc_impl.h"
#include "link/direct/bind/account.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/death.h"
#include "link/direct/bind/lane.h"
#include "link/direct/bind/record.h"
#include "link/direct/direct.h"
#include "link/direct/process/block.h"
#include "link/direct/process/inbox.h"
#include "link/direct/process/peer.h"
#include "link/direct/process/state.h"
#include "link/direct/serve/responder.h"

/* A peer that begins a new life does it in less, unless it is stopped. */
#define RENEWAL_NS (10 * SW_NS_PER_MS)

static bool bind_is_here(const struct sw_qp *qp)
{
    return qp->attr.ah_attr.is_global && sw_netdev_is_local_gid(&qp->attr.ah_attr.grh.dgid);
}

int sw_bind_open(struct sw_qp *qp, uint32_t slot, struct sw_direct_qp **out)
{
    static atomic_uint lives;
    struct sw_direct_qp *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->life = atomic_fetch_add(&lives, 1) + 1;
    d->rules = sw_verdict_rules_of(qp->type);
    d->dev = qp->ctx ? qp->ctx->netdev : NULL;
    d->send.request_limit = SW_REQUEST_SLOTS - 1;
    d->serve.answer_limit = SW_RESPONSE_SLOTS;
    int rc = slot ? sw_inbox_take(slot, &d->inbox, &d->rx_index) : 0;
    if (!rc && slot) {
        d->rx = sw_inbox_block(d->inbox->base, d->rx_index);
        atomic_store(&d->rx->tenancy, (uint64_t)d->life << 32);
        d->peer = sw_peer_get(slot);
        rc = d->peer ? 0 : -ENOMEM;
    }
    if (rc)
        sw_bind_close(d);
    else
        *out = d;
    return rc;
}

void sw_bind_close(struct sw_direct_qp *d)
{
    if (d->inbox)
        sw_inbox_give(d->inbox, d->rx_index);
    if (d->peer)
        sw_peer_put(d->peer);
    sw_flushing_drop(&d->serve.flushing);
    free(d);
}

void sw_bind_begin(struct sw_qp *qp, struct sw_direct_qp *d)
{
    sw_lock_assert_held(&qp->lock);
    qp->link_state = d;
    /* One that was taken for a message of which the end never came serves the next one. */
    SW_PUB_SET(qp->pub->rq_base, atomic_load(&qp->rq.consumed) - d->serve.receive.is_taken);
    if (d->rx) {
        SW_PUB_SET(qp->pub->block, d->rx_index);
        atomic_store(&qp->rx_expect, 1);
        atomic_store(&qp->rx_seq, &d->rx->requests[0].seq);
        atomic_store(&qp->awaited_rung, 0);
        atomic_store(&qp->awaited, &d->rx->awaits_posted);
    }
    sw_qp_publish(qp, qp->state);
}

int sw_bind_connect(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    uint32_t slot = sw_qpn_slot(qp->dest_qpn);
    bool reachable = !sw_direct.off && slot >= 1 && slot <= SW_SLOT_MAX && bind_is_here(qp);
    struct sw_direct_qp *d;
    /* Else nobody will ever answer: sends end with IBV_WC_RETRY_EXC_ERR, as on a wire. */
    int rc = sw_bind_open(qp, reachable ? slot : 0, &d);
    if (rc)
        return rc;
    d->remote.qpn = qp->dest_qpn;
    qp->inside = (struct sw_inside){0};
    sw_bind_begin(qp, d);
    return 0;
}

static const struct sw_pub_qp *bind_entry_of(const struct sw_direct_qp *d)
{
    if (!d->peer || atomic_load(&d->peer->state) != SW_PEER_READY)
        return NULL;
    return &d->peer->pub->qps[sw_qpn_index(d->remote.qpn)];
}

/* Whether the peer's entry is about to change, or has since we were bound by it. */
static bool has_changed(const struct sw_direct_qp *d)
{
    const struct sw_pub_qp *remote = bind_entry_of(d);
    const uint64_t word = remote ? atomic_load(&remote->bind_word) : 0;
    return (uint32_t)word == SW_PUB_CHANGING || (d->tx && word != d->remote.word);
}

/* A message that is its kind alone. */
static void publish_bare(struct sw_direct_qp *d, struct sw_record *record, uint8_t kind)
{
    record->kind = kind;
    record->flags = 0;
    record->len_bytes = 0;
    sw_record_publish(d, record, 1, false);
}

/* The peer of an unreliable connection may meet a new life of this QP without one of its own: it
 * learns, after all that was sent, where the old one ends. */
static void bind_say_goodbye(struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (!d->rules[SW_UNREACHABLE].lost)
        return;
    const uint64_t end_ns = sw_clock_ns() + RENEWAL_NS;
    while (!sw_bind_enter(qp, d)) {
        if (!has_changed(d) || sw_clock_ns() > end_ns)
            return; /* it is not connected to us */
        sched_yield();
    }
    struct sw_record *record = sw_record_reserve(d, 1, true);
    if (record)
        publish_bare(d, record, SW_REC_BYE);
    sw_bind_leave(d);
    sw_peer_ring(d->peer);
}

/* Afterwards no peer touches memory through this connection. */
static void part_from_peer(struct sw_qp *qp, struct sw_direct_qp *d, uint32_t state)
{
    sw_lock_assert_held(&qp->lock);
    sw_qp_rx_idle(qp);
    sw_qp_publish(qp, state); /* nobody may start an access from here on */
    struct sw_traffic moved = {0};
    sw_account_read(d, &moved);
    sw_traffic_add(&qp->moved, &moved);
    uint32_t lost = d->serve.lost + (d->rx ? atomic_load(&d->rx->lost) : 0);
    if (lost)
        sw_info("QP 0x%x: %u messages were lost: no receive, one too short, or a bad key", qp->qpn,
                lost);
    sw_lane_close_all(d);
    if (d->inbox)
        qp->inside = sw_inbox_give(d->inbox, d->rx_index);
    d->inbox = NULL;
}

/* A sender may have been told that what lies in the ring was delivered: it gets its receives before
 * they are flushed, as what was acknowledged has on a wire. Nobody may add to it from here on. */
static void take_the_last(struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (!d->rx || d->serve.is_running || qp->xrcd)
        return;
    sw_qp_publish(qp, IBV_QPS_RESET);
    sw_inbox_wait(d->inbox, d->rx_index);
    for (uint32_t i = 0; i < SW_REQUEST_SLOTS && qp->link_state == d; i++)
        if (!sw_serve_run(qp, d))
            return;
}

void sw_bind_disconnect(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_direct_qp *d = qp->link_state;
    if (!d)
        return;
    bind_say_goodbye(qp, d);
    take_the_last(qp, d);
    if (qp->link_state != d) /* it was at fault */
        return;
    part_from_peer(qp, d, IBV_QPS_RESET);
    if (qp->state == IBV_QPS_ERR)
        sw_receive_flush(qp, &d->serve.receive);
    qp->link_state = NULL;
    sw_bind_close(d);
}

bool sw_bind_is_inside(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    return sw_inbox_is_inside(&qp->inside);
}

/* Requests that were sent but not answered, or in part, will not be. */
static void lose_begun(struct sw_qp *qp)
{
    struct sw_sq *sq = &qp->sq;
    if (sw_sq_has_begun(sq))
        sw_sq_at(sq, sq->next++)->state = SW_WQE_SENT;
    for (uint32_t at = sq->head; at != sq->next; at++)
        if (sw_sq_at(sq, at)->state == SW_WQE_SENT)
            sw_sq_at(sq, at)->state = SW_WQE_DONE;
}

bool sw_bind_renew(struct sw_qp *qp, struct sw_direct_qp *d)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_direct_qp *fresh;
    if (sw_bind_is_gone(d) || sw_bind_open(qp, d->peer->slot, &fresh))
        return false;
    fresh->remote.qpn = d->remote.qpn;
    fresh->serve.receive = d->serve.receive;
    part_from_peer(qp, d, SW_PUB_CHANGING);
    sw_bind_close(d);
    lose_begun(qp);
    sw_bind_begin(qp, fresh);
    return true;
}

/* What is used of the peer's entry, read once: the peer could change it at any time. */
struct entry {
    uint32_t access, pd, block, recv_cq, send_cq, rq_base;
    struct sw_pub_domain domain;
    uint32_t rq_entries, rq_stride;
    uint64_t rq_offset;
    bool in_order;
};

static struct entry bind_read_entry(const struct sw_pub_qp *remote)
{
    const volatile struct sw_pub_qp *now = remote;
    return (struct entry){
        .access = SW_PUB_GET(now->access),
        .pd = SW_PUB_GET(now->pd),
        .block = SW_PUB_GET(now->block),
        .recv_cq = SW_PUB_GET(now->recv_cq),
        .send_cq = SW_PUB_GET(now->send_cq),
        .rq_base = SW_PUB_GET(now->rq_base),
        .domain = {{SW_PUB_GET(now->domain.id[0]), SW_PUB_GET(now->domain.id[1])}},
        .rq_entries = SW_PUB_GET(now->rq_entries),
        .rq_stride = SW_PUB_GET(now->rq_stride_bytes),
        .rq_offset = SW_PUB_GET(now->rq_offset),
        .in_order = SW_PUB_GET(now->in_order) != 0,
    };
}

static bool bind_is_sane(const struct sw_peer *peer, const struct entry *entry)
{
    if (entry->block >= peer->inbox_blocks || entry->recv_cq >= SW_MAX_CQ ||
        entry->send_cq >= SW_MAX_CQ)
        return false;
    if (entry->rq_entries == 0)
        return true;
    uint64_t len_bytes = (uint64_t)entry->rq_entries * entry->rq_stride;
    return (entry->rq_entries & (entry->rq_entries - 1)) == 0 &&
           entry->rq_stride >= sizeof(struct sw_pub_recv) + sizeof(struct ibv_sge) &&
           (entry->rq_stride | entry->rq_offset) % sizeof(struct sw_pub_recv) == 0 &&
           entry->rq_offset >= offsetof(struct sw_pub, rq_arena) &&
           entry->rq_offset <= peer->pub_bytes && len_bytes <= peer->pub_bytes - entry->rq_offset;
}

static void bind_take_entry(struct sw_direct_qp *d, const struct entry *entry, uint64_t word)
{
    d->remote.word = word;
    d->remote.access = entry->access;
    d->remote.pd = entry->pd;
    d->remote.recv_cq = entry->recv_cq;
    d->remote.send_cq = entry->send_cq;
    d->remote.domain = entry->domain;
    d->remote.srq_word = 0;
    d->remote.in_order = entry->in_order;
    d->remote.rq_entries = entry->rq_entries;
    d->remote.rq_stride = entry->rq_stride;
    d->remote.rq = entry->rq_entries ? (const uint8_t *)d->peer->pub + entry->rq_offset : NULL;
    memset(d->keys, 0, sizeof(d->keys));
}

/* The exchange orders the section's start before the reads of the peer's entries; the peer's side
 * of it is sw_inbox_wait(). False: the block has been taken from us, and may be another QP's. */
static inline bool begin_access(struct sw_direct_qp *d)
{
    uint32_t seq = d->access_seq;
    if (__builtin_expect(
            !atomic_compare_exchange_strong(&d->tx->access_seq, &seq, d->access_seq + 1), 0))
        return false;
    d->access_seq++;
    return true;
}

static inline void end_access(struct sw_direct_qp *d)
{
    atomic_store_explicit(&d->tx->access_seq, ++d->access_seq, memory_order_release);
}

/* The peer's QP waits in RTR: the first sign of life from here makes it known as established (IBTA
 * Vol1 11.6.3.2). A one-sided operation would leave no trace there. */
static void greet_peer(struct sw_direct_qp *d, uint64_t word)
{
    if (!begin_access(d))
        return;
    if (atomic_load(&d->remote.entry->bind_word) == word) {
        struct sw_record *record = sw_record_reserve(d, 1, false);
        publish_bare(d, record, SW_REC_HELLO);
    }
    end_access(d);
    sw_peer_ring(d->peer);
}

/* The type of QP that one of `type` talks to. */
static uint8_t counterpart_type(enum ibv_qp_type type)
{
    if (type == IBV_QPT_XRC_SEND)
        return IBV_QPT_XRC_RECV;
    return type == IBV_QPT_XRC_RECV ? IBV_QPT_XRC_SEND : (uint8_t)type;
}

bool sw_bind_name_srq(struct sw_direct_qp *d, uint32_t srq_num)
{
    const struct sw_pub_srq *entry = &d->peer->pub->srqs[sw_srq_index(srq_num)];
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire);
    if (word && word == d->remote.srq_word && srq_num == d->remote.srq_num)
        return true;
    const volatile struct sw_pub_srq *now = entry;
    const struct sw_pub_domain domain = {{now->domain.id[0], now->domain.id[1]}};
    uint32_t pd = now->pd, cq = now->cq;
    d->remote.srq_word = 0;
    if (!word || (uint32_t)word != srq_num || !sw_domain_is(&domain, &d->remote.domain) ||
        cq >= SW_MAX_CQ || atomic_load(&entry->word) != word)
        return false;
    d->send.notify_all |= d->send.notify && cq != d->remote.recv_cq;
    d->remote.srq_word = word;
    d->remote.srq_num = srq_num;
    d->remote.recv_cq = cq;
    if (pd != d->remote.pd) {
        d->remote.pd = pd;
        memset(d->keys, 0, sizeof(d->keys));
    }
    return true;
}

/* One binding serves one life of either QP: after a reset of ours alone the peer's positions would
 * not match. `reader` is the life that was bound to the block when the peer's entry named it: if
 * the block serves another QP by now, it is not touched. */
static bool claim_block(const struct sw_direct_qp *d, struct sw_block *tx, uint32_t reader)
{
    uint64_t none = (uint64_t)reader << 32;
    const uint64_t mine = none | d->life;
    return reader && (atomic_compare_exchange_strong(&tx->tenancy, &none, mine) || none == mine);
}

/* Whether the life of the peer that reads `tx` is the one that writes our block, if any does yet.
 */
static bool is_writer(const struct sw_direct_qp *d, const struct sw_block *tx)
{
    uint32_t writer = sw_block_writer(d->rx);
    return !writer || writer == sw_block_reader(tx);
}

/* The peer has reconnected under us. A reliable connection never recovers from that. The peer of an
 * unreliable one never wrote to us before (else its goodbye has us begin anew altogether): only
 * what we write begins anew. */
static bool follow_peer(struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (!d->rules[SW_UNREACHABLE].lost)
        return false;
    qp->moved.sent_bytes += d->send.sums[SW_MOVED_OUT].bytes;
    qp->moved.sent_packets += d->send.sums[SW_MOVED_OUT].packets;
    memset(d->send.sums, 0, sizeof(d->send.sums));
    d->tx = NULL;
    d->access_seq = d->send.request_at = d->send.bounce_at = d->send.recv_posted =
        d->send.answers_due = 0;
    d->serve.answer_at = d->serve.answer_bounce_at = d->serve.acknowledged = 0;
    d->send.in_doubt = false;
    d->send.request_limit = SW_REQUEST_SLOTS - 1;
    lose_begun(qp);
    return true;
}

/* Reads the peer's entry; true if it is connected to us. Inside an access section of `block` once
 * that is known. */
static bool try_bind(struct sw_qp *qp, struct sw_direct_qp *d)
{
    struct sw_peer *peer = d->peer;
    if (!peer || atomic_load_explicit(&peer->state, memory_order_acquire) != SW_PEER_READY)
        return false;
    const struct sw_pub_qp *remote = &peer->pub->qps[sw_qpn_index(d->remote.qpn)];
    uint64_t word = atomic_load(&remote->bind_word);
    uint32_t state = (uint32_t)word;
    if (!sw_bind_is_connected(state) || SW_PUB_GET(remote->qpn) != d->remote.qpn ||
        SW_PUB_GET(remote->dest_qpn) != qp->shown_qpn ||
        SW_PUB_GET(remote->type) != counterpart_type(qp->type))
        return false;
    struct entry entry = bind_read_entry(remote);
    if (d->xrc.lent_token)
        entry.block = d->xrc.lent_block;
    if (!bind_is_sane(peer, &entry))
        return false;
    struct sw_block *tx = sw_inbox_block(peer->inbox, entry.block);
    if (d->rules[SW_UNREACHABLE].lost && !is_writer(d, tx))
        return false; /* its goodbye is on the way */
    const uint32_t reader = d->xrc.lent_token ? d->xrc.lent_token : sw_block_reader(tx);
    if (atomic_load(&remote->bind_word) != word) /* the reader may be another one's */
        return false;
    if (d->tx && (d->tx != tx || d->tx_reader != reader) && !follow_peer(qp, d))
        return false;
    if (!claim_block(d, tx, reader))
        return false;
    bool first = !d->tx;
    if (first) {
        d->send.recv_used = entry.rq_base;
        d->access_seq = atomic_load(&tx->access_seq);
    }
    d->tx = tx;
    d->tx_reader = reader;
    atomic_store(&tx->can_pull, peer->self || atomic_load(&peer->can_cma));
    d->remote.entry = remote;
    bind_take_entry(d, &entry, word);
    if (first && state == IBV_QPS_RTR)
        greet_peer(d, word);
    return true;
}

/* How the peer's queue pair stands to ours. */
enum standing {
    STANDS_APART,    /* it is not connected to us */
    STANDS_CHANGING, /* its entry is about to change, or has while it was read */
    STANDS_TO_US,
};

/* The word is read once: what it says first and next may differ. */
static enum standing look_at_entry(const struct sw_qp *qp, const struct sw_direct_qp *d,
                                   const struct sw_pub_qp *remote, uint64_t *word)
{
    *word = atomic_load(&remote->bind_word);
    if ((uint32_t)*word == SW_PUB_CHANGING)
        return STANDS_CHANGING;
    const bool is_to_us = sw_bind_is_connected((uint32_t)*word) &&
                          SW_PUB_GET(remote->qpn) == d->remote.qpn &&
                          SW_PUB_GET(remote->dest_qpn) == qp->shown_qpn &&
                          SW_PUB_GET(remote->type) == counterpart_type(qp->type);
    if (atomic_load(&remote->bind_word) != *word)
        return STANDS_CHANGING;
    return is_to_us ? STANDS_TO_US : STANDS_APART;
}

bool sw_bind_is_over(const struct sw_qp *qp, const struct sw_direct_qp *d)
{
    const struct sw_pub_qp *remote = bind_entry_of(d);
    uint64_t word;
    if (!d->rules[SW_UNREACHABLE].lost || !remote)
        return false;
    const enum standing standing = look_at_entry(qp, d, remote, &word);
    if (standing != STANDS_TO_US)
        return standing == STANDS_APART;
    const uint32_t block = SW_PUB_GET(remote->block);
    const bool writes =
        block < d->peer->inbox_blocks && is_writer(d, sw_inbox_block(d->peer->inbox, block));
    return !writes && atomic_load(&remote->bind_word) == word;
}

bool sw_bind_is_awaited(const struct sw_qp *qp, const struct sw_direct_qp *d)
{
    const struct sw_pub_qp *remote = bind_entry_of(d);
    uint64_t word;
    if (!remote)
        return false;
    const enum standing standing = look_at_entry(qp, d, remote, &word);
    /* Where we are bound, it has changed since we last tried to enter. */
    return standing == STANDS_CHANGING ||
           (standing == STANDS_TO_US && (!d->tx || word != d->remote.word));
}

bool sw_bind_is_being_attached(const struct sw_peer *peer)
{
    int state = peer ? atomic_load(&peer->state) : SW_PEER_DEAD;
    return (state == SW_PEER_CONNECTING || state == SW_PEER_IDLE) && !peer->retry_at_ns;
}

bool sw_bind_enter(struct sw_qp *qp, struct sw_direct_qp *d)
{
    sw_sigbus_enter(); /* the peer may make shorter what we are about to access */
    if (__builtin_expect(!d->tx, 0) && !try_bind(qp, d))
        return false;
    for (int attempt = 0; attempt < 2; attempt++) {
        if (begin_access(d)) {
            if (__builtin_expect(atomic_load_explicit(&d->remote.entry->bind_word,
                                                      memory_order_acquire) == d->remote.word,
                                 1) &&
                atomic_load_explicit(&d->peer->state, memory_order_relaxed) == SW_PEER_READY) {
                d->accessing = true;
                return true;
            }
            end_access(d);
        }
        if (attempt == 0 &&
            !try_bind(qp, d)) /* RTR to RTS, or new rights: the same binding goes on */
            return false;
    }
    return false;
}

void sw_bind_leave(struct sw_direct_qp *d)
{
    d->accessing = false;
    end_access(d);
}

void sw_bind_leave_fenced(struct sw_direct_qp *d)
{
    d->accessing = false;
    atomic_exchange(&d->tx->access_seq, ++d->access_seq);
}

void sw_bind_forget_keys(struct sw_peer *peer)
{
    pthread_mutex_lock(&sw_nic.lock);
    for (uint32_t i = sw_nic_first_qp(); i < SW_MAX_QP; i = sw_nic_next_qp(i)) {
        struct sw_qp *qp = sw_nic.qps[i];
        sw_lock_acquire(&qp->lock);
        struct sw_direct_qp *d = sw_direct_of(qp);
        if (d && d->peer == peer)
            memset(d->keys, 0, sizeof(d->keys));
        if (d)
            sw_lane_forget_keys(d, peer);
        sw_lock_release(&qp->lock);
    }
    pthread_mutex_unlock(&sw_nic.lock);
}
