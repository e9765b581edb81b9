/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connection's life, and who looks after its socket. A program that polls reads it by itself. The
 * engine watches it where the program does not: while it sleeps for an event, or is busy with other
 * things, or nothing comes for a while.
 */
#include "link/iwarp/connection.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/minmax.h"
#include "base/random.h"
#include "device/nic/context.h"
#include "device/nic/netdev.h"
#include "device/queue/cq_impl.h"
#include "link/engine.h"
#include "link/iwarp/iwarp.h"
#include "link/iwarp/linger.h"
#include "link/iwarp/socket.h"
#include "wire/bytes.h"
#include "wire/iwarp/pairing.h"
#include "wire/iwarp/rdmap.h"

#define AWAY_NS (2 * SW_NS_PER_MS)  /* without a poll: the program does something else */
#define IDLE_NS (10 * SW_NS_PER_MS) /* nothing moved: the engine can tell when something comes */
#define VAIN_NS (30 * SW_NS_PER_US) /* nothing came: pollers let others run */
#define CROWD 16u                   /* queue pairs of a queue: idle ones are not looked at then */
#define VISITS 32u                  /* polls in a row: the program spins */

/* ---- who looks after the socket ---- */

static void *connection_tag_of(const struct sw_iwarp_connection *c)
{
    const uint32_t shift = c->is_paired ? SW_IWARP_TAG_SHIFT : 0;
    return (void *)(((uintptr_t)c->qp->index << shift) << 4);
}

static enum sw_watch_kind connection_kind_of(const struct sw_iwarp_connection *c)
{
    return c->is_paired ? SW_WATCH_PAIRED : SW_WATCH_IWARP;
}

static void set_watch(struct sw_iwarp_connection *c, bool is_watched)
{
    struct sw_qp *qp = c->qp;
    if (c->is_watched == is_watched)
        return;
    c->is_watched = is_watched;
    c->watches_room = false;
    c->visits = 0;
    if (is_watched) {
        sw_engine_watch(c->fd, connection_tag_of(c), connection_kind_of(c));
        sw_iwarp_give_back(c);
    } else {
        sw_engine_unwatch(c->fd);
    }
    atomic_store(&qp->rx_pending, !is_watched);
    if (!is_watched)
        sw_engine_nudge(); /* it may sleep, and is to see when the program polls no more */
}

static void watch_room(struct sw_iwarp_connection *c)
{
    if (!c->is_watched || c->watches_room == c->is_blocked)
        return;
    c->watches_room = c->is_blocked;
    sw_engine_watch_room(c->fd, connection_tag_of(c), connection_kind_of(c), c->is_blocked);
}

static void set_polls(struct sw_qp *qp, enum sw_qp_polls polls)
{
    if (sw_qp_polls_link(qp) != polls)
        atomic_store_explicit(&qp->polls_link, polls, memory_order_relaxed);
}

/* Pollers and the engine leave the connection alone until the socket shows something. */
static void set_rest(struct sw_iwarp_connection *c, bool rests)
{
    set_polls(c->qp, rests ? SW_QP_POLLS_NOT : SW_QP_POLLS);
    sw_qp_rest(c->qp, rests);
}

static void mind_socket(struct sw_iwarp_connection *c, bool moved)
{
    const uint64_t now_ns = sw_clock_ns();
    if (moved) {
        c->moved_ns = now_ns;
        set_rest(c, false);
    }
    if (sw_engine_drives(c->qp)) {
        if (now_ns - c->polled_ns > AWAY_NS)
            set_watch(c, true);
    } else {
        c->polled_ns = now_ns;
        if (sw_qp_is_armed(c->qp))
            set_watch(c, true);
        else if (c->is_watched && ++c->visits >= VISITS && now_ns - c->moved_ns < IDLE_NS)
            set_watch(c, false);
        else if (now_ns - c->moved_ns > IDLE_NS)
            set_watch(c, true);
    }
    atomic_store(&c->qp->rx_pending, !c->is_watched || c->parking.is_parked);
    if (c->is_watched && now_ns - c->moved_ns > IDLE_NS && !c->is_paired &&
        c->qp->recv_cq->qp_count > CROWD)
        set_rest(c, true);
    else if (!moved && now_ns - c->moved_ns > VAIN_NS)
        set_polls(c->qp, SW_QP_POLLS_IN_VAIN);
    watch_room(c);
}

/* ---- work ---- */

/* Whether what the peer has refused is a WRITE by the key of this one: this one, or one before it
 * that was complete already, since TCP had it. */
static bool connection_is_refused_write(const struct sw_terminate *terminate,
                                        const struct sw_wqe *wqe)
{
    return terminate->ddp_len == SW_DDP_TAGGED_BYTES &&
           (terminate->ddp[1] & 0xf) == SW_RDMAP_WRITE && wqe->opcode == IBV_WR_RDMA_WRITE &&
           wqe->len_bytes && sw_be32_load(terminate->ddp + 2) == wqe->rkey;
}

/* The oldest request that is not complete. */
static enum ibv_wc_status connection_status_of_refusal(const struct sw_iwarp_connection *c)
{
    struct sw_qp *qp = c->qp;
    const struct sw_terminate *terminate = &c->machine.terminate;
    const uint16_t layer = terminate->cause >> 8;
    const bool is_protection = layer == 0x01 || layer == 0x11;
    if (qp->sq.head == qp->sq.tail)
        return IBV_WC_SUCCESS;
    const struct sw_wqe *wqe = sw_sq_at(&qp->sq, qp->sq.head);
    if (c->machine.read_count && wqe->opcode == IBV_WR_RDMA_READ)
        return is_protection ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_OP_ERR;
    return is_protection && connection_is_refused_write(terminate, wqe) ? IBV_WC_REM_ACCESS_ERR
                                                                        : IBV_WC_SUCCESS;
}

/* What the oldest request is told, if the peer refused it. */
static void connection_note_refusal(struct sw_iwarp_connection *c)
{
    const struct sw_qp *qp = c->qp;
    if (c->machine.by_peer && c->is_paired) {
        sw_iwarp_note_paired_refusal(c);
    } else if (c->machine.by_peer) {
        c->send_status = connection_status_of_refusal(c);
        c->end_event = IBV_EVENT_QP_FATAL;
        sw_info("QP 0x%x: the peer ended the connection, Terminate 0x%04x", qp->qpn,
                c->machine.terminate.cause);
    } else {
        const bool wraps = c->machine.terminate.cause == SW_TERMINATE_WRAP ||
                           c->machine.terminate.cause == SW_TERMINATE_READ_WRAP;
        if (!c->was_refused)
            c->end_event = wraps ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR;
        sw_info("QP 0x%x: connection ended for a fault of the peer, Terminate 0x%04x", qp->qpn,
                c->machine.terminate.cause);
    }
}

/* A completion was lost. Nobody looks for that any more when the peer has ended, too. */
static void note_overrun(struct sw_iwarp_connection *c)
{
    struct sw_cq *send_cq = c->qp->send_cq, *recv_cq = c->qp->recv_cq;
    if (!sw_cq_is_overrun(send_cq) && !sw_cq_is_overrun(recv_cq))
        return;
    sw_cq_tell_overflow(send_cq);
    sw_cq_tell_overflow(recv_cq);
    c->end_event = IBV_EVENT_QP_FATAL;
}

enum sw_iwarp_life sw_iwarp_fail(struct sw_iwarp_connection *c, int errno_of_peer)
{
    struct sw_qp *qp = c->qp;
    sw_lock_assert_held(&qp->lock);
    c->is_over = true;
    if (c->end_event < 0)
        note_overrun(c);
    c->end_errno = errno_of_peer;
    if (c->send_status != IBV_WC_SUCCESS && qp->sq.head != qp->sq.tail)
        sw_sq_retire(qp, c->send_status);
    sw_qp_fail(qp, c->end_event);
    return SW_IWARP_DEAD;
}

enum sw_iwarp_life sw_iwarp_end_by_terminate(struct sw_iwarp_connection *c)
{
    sw_lock_assert_held(&c->qp->lock);
    sw_iwarp_count_terminate(c);
    connection_note_refusal(c);
    return sw_iwarp_fail(c, c->machine.by_peer ? 0 : -EPROTO);
}

void sw_iwarp_drive(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_iwarp_connection *c = qp->link_state;
    bool moved = false;
    if (!c)
        return;
    if (sw_iwarp_receive(c, &moved) == SW_IWARP_DEAD)
        return;
    if (!c->machine.by_peer && /* else there is nobody to answer */
        ((c->is_paired && sw_iwarp_step_paired(c, moved) == SW_IWARP_DEAD) ||
         sw_iwarp_transmit(c, &moved) == SW_IWARP_DEAD))
        return;
    if (c->machine.over && !(c->is_paired && c->machine.is_due)) {
        sw_iwarp_end_by_terminate(c);
        return;
    }
    mind_socket(c, moved);
    if (c->is_paired)
        sw_iwarp_note_pending(c);
}

void sw_iwarp_start_sends(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_iwarp_connection *c = qp->link_state;
    bool moved = false;
    if (!c || sw_iwarp_feed(c) == SW_IWARP_DEAD || sw_iwarp_transmit(c, &moved) == SW_IWARP_DEAD)
        return;
    if (c->is_blocked || c->posted != qp->sq.tail)
        moved = true; /* somebody has to go on with it */
    if (moved && !c->is_watched)
        c->moved_ns = sw_clock_ns();
    if (c->is_watched && moved)
        set_rest(c, false);
    watch_room(c);
    if (c->is_paired)
        sw_iwarp_note_pending(c);
}

static void connection_read_traffic(struct sw_qp *qp, struct sw_traffic *out)
{
    (void)qp;
    *out = (struct sw_traffic){0}; /* qp->moved is kept up to date */
}

/* ---- peers that say nothing ---- */

#define NUDGE_NS (10 * SW_NS_PER_MS) /* at first; each time ten times as long */
#define NUDGE_LAST_NS SW_NS_PER_S
#define HOLD_NS (20 * SW_NS_PER_MS) /* that a responder waits for the first message */

_Atomic uint64_t sw_iwarp_nudge_ns = UINT64_MAX;

static void plan_nudge(struct sw_iwarp_connection *c, uint64_t gap_ns)
{
    c->nudge_gap_ns = gap_ns;
    c->nudge_ns = gap_ns <= NUDGE_LAST_NS ? sw_clock_ns() + gap_ns : UINT64_MAX;
    uint64_t seen = atomic_load(&sw_iwarp_nudge_ns);
    while (c->nudge_ns < seen &&
           !atomic_compare_exchange_weak(&sw_iwarp_nudge_ns, &seen, c->nudge_ns))
        ;
}

static void nudge_peer(struct sw_qp *qp, uint64_t now_ns)
{
    struct sw_iwarp_connection *c = qp->link_state;
    bool moved = false;
    if (!c || now_ns < c->nudge_ns)
        return;
    sw_iwarp_nudge(&c->machine);
    sw_iwarp_release(&c->machine);
    const bool goes_on = c->machine.is_nudge_due;
    if (sw_iwarp_transmit(c, &moved) == SW_IWARP_ALIVE)
        plan_nudge(c, goes_on ? c->nudge_gap_ns * 10 : UINT64_MAX);
}

uint64_t sw_iwarp_nudge_peers(uint64_t now_ns)
{
    if (now_ns < atomic_load(&sw_iwarp_nudge_ns))
        return atomic_load(&sw_iwarp_nudge_ns);
    atomic_store(&sw_iwarp_nudge_ns, UINT64_MAX);
    pthread_mutex_lock(&sw_nic.lock);
    for (uint32_t i = sw_nic_first_qp(); i < SW_MAX_QP; i = sw_nic_next_qp(i)) {
        struct sw_qp *qp = sw_nic.qps[i];
        if (!qp->rules->is_iwarp)
            continue;
        sw_lock_acquire(&qp->lock);
        const struct sw_iwarp_connection *c = qp->link_state;
        nudge_peer(qp, now_ns);
        if (c && qp->link_state == c && c->nudge_ns < atomic_load(&sw_iwarp_nudge_ns))
            atomic_store(&sw_iwarp_nudge_ns, c->nudge_ns);
        sw_lock_release(&qp->lock);
    }
    pthread_mutex_unlock(&sw_nic.lock);
    return atomic_load(&sw_iwarp_nudge_ns);
}

/* ---- beginning and end ---- */

static int refuse_connect(struct sw_qp *qp)
{
    (void)qp;
    return -EINVAL; /* only connection management connects */
}

void sw_iwarp_disconnect(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_iwarp_connection *c = qp->link_state;
    size_t len;
    if (!c)
        return;
    set_watch(c, false);
    atomic_store(&qp->rx_pending, false);
    set_rest(c, false);
    set_polls(qp, SW_QP_POLLS_NOT);
    atomic_store(&qp->rq.claimed, 0);
    if (qp->state == IBV_QPS_ERR)
        sw_receive_flush(qp, &c->receive);
    uint8_t *rest = sw_iwarp_copy_rest(c, &len);
    rest = sw_iwarp_add_final_fpdus(c, rest, &len);
    sw_iwarp_linger(c->fd, rest, rest ? len : 0, !c->has_left);
    sw_iwarp_drop_parking(c);
    c->end_note.status = c->end_errno;
    qp->link_state = NULL;
    sw_iwarp_note(&c->end_note);
}

const struct sw_qp_ops sw_iwarp_qp_ops = {
    .connect = refuse_connect,
    .disconnect = sw_iwarp_disconnect,
    .send = sw_iwarp_start_sends,
    .progress = sw_iwarp_drive,
    .traffic = connection_read_traffic,
};

static uint32_t fpdu_max_of(const struct sw_iwarp_begin *begin)
{
    const uint32_t segment = sw_iwarp_socket_segment(begin->fd);
    return begin->terms.large || segment > SW_IWARP_LARGE_FPDU ? SW_IWARP_LARGE_FPDU
                                                               : segment & ~7u;
}

static uint16_t depth_of(uint16_t depth)
{
    return sw_min_u16(depth, SW_IWARP_DEPTH_MAX);
}

static void init_machines(struct sw_iwarp_connection *c, const struct sw_iwarp_begin *begin)
{
    const struct sw_iwarp_config config = {
        .ird = depth_of(begin->terms.ird),
        .ord = depth_of(begin->terms.ord),
        .fpdu_max = fpdu_max_of(begin),
        .token_seed = (uint32_t)sw_random64(),
        .rtr = begin->terms.rtr,
        .is_initiator = begin->is_initiator,
        .is_held = !begin->is_initiator && !begin->is_paired,
        .is_paired = begin->is_paired,
        .has_persistence = begin->peer_skills & SW_PAIRING_PERSISTENCE,
    };
    sw_iwarp_init(&c->machine, &config, c->ring, c->qp->sq.mask + 1);
    sw_iwarp_stream_init(&c->stream, NULL, SW_FPDU_MAX, begin->terms.crc);
}

static struct sw_iwarp_connection *make_connection(struct sw_qp *qp,
                                                   const struct sw_iwarp_begin *begin)
{
    /* The machine clears what it has to: most of it are READs that may never come. */
    struct sw_iwarp_connection *c = malloc(sizeof(*c));
    if (!c)
        return NULL;
    memset(c, 0, offsetof(struct sw_iwarp_connection, machine));
    c->ring = calloc(qp->sq.mask + 1, sizeof(*c->ring));
    if (!c->ring) {
        free(c);
        return NULL;
    }
    c->qp = qp;
    c->fd = begin->fd;
    c->has_crc = begin->terms.crc;
    c->is_paired = begin->is_paired;
    c->outcome = begin->outcome;
    c->knows_voids = !c->has_crc && begin->peer_skills & SW_PAIRING_VOIDS;
    c->nudge_ns = UINT64_MAX;
    c->awaits_first = begin->awaits_first;
    c->send_status = IBV_WC_SUCCESS;
    c->end_event = -1;
    c->posted = c->offset = qp->sq.tail;
    c->moved_ns = sw_clock_ns();
    c->first_note =
        (struct sw_iwarp_note){.owner = c, .news = SW_IWARP_FIRST_CAME, .cookie = begin->cookie};
    c->end_note =
        (struct sw_iwarp_note){.owner = c, .news = SW_IWARP_ENDED, .cookie = begin->cookie};
    if (sw_iwarp_socket_paces(c->fd))
        sw_iwarp_pacing_start(&c->pacing);
    init_machines(c, begin);
    return c;
}

int sw_iwarp_begin_paired(struct sw_qp *qp, const struct sw_iwarp_begin *begin)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_iwarp_connection *c = make_connection(qp, begin);
    if (!c)
        return -ENOMEM;
    c->posted = c->offset = qp->sq.head;
    c->outcome->has_begun |= begin->is_initiator; /* the reply has come */
    qp->link_state = c;
    if (begin->is_initiator)
        sw_iwarp_greet(&c->machine);
    sw_iwarp_change_paired(qp);
    set_polls(qp, SW_QP_POLLS);
    atomic_store(&qp->rx_pending, true);
    if (!begin->len || sw_iwarp_take_bytes(c, begin->bytes, begin->len) == SW_IWARP_ALIVE)
        sw_iwarp_drive(qp);
    return 0;
}

static bool connection_is_ready(const struct sw_qp *qp)
{
    return qp->rules->is_iwarp && !qp->orphan && !qp->link_state &&
           (qp->state == IBV_QPS_INIT || qp->state == IBV_QPS_RTR);
}

/* That of its interface, as siw has it. */
static enum ibv_mtu path_mtu_of(const struct sw_qp *qp)
{
    struct sw_netdev_info info;
    sw_netdev_read(qp->ctx->netdev, &info);
    return sw_context_mtu(info.mtu_bytes);
}

static int begin_locked(struct sw_qp *qp, const struct sw_iwarp_begin *begin)
{
    sw_lock_assert_held(&qp->lock);
    if (!connection_is_ready(qp))
        return -EINVAL;
    struct sw_iwarp_connection *c = make_connection(qp, begin);
    if (!c)
        return -ENOMEM;
    qp->attr.qp_access_flags |=
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    qp->attr.path_mtu = path_mtu_of(qp);
    qp->attr.max_rd_atomic = (uint8_t)c->machine.config.ord;
    qp->attr.max_dest_rd_atomic = (uint8_t)c->machine.config.ird;
    qp->link_state = c;
    sw_qp_set_state(qp, IBV_QPS_RTS);
    sw_qp_publish(qp, IBV_QPS_RTS);
    set_polls(qp, SW_QP_POLLS);
    atomic_store(&qp->rx_pending, true);
    plan_nudge(c, begin->is_initiator ? NUDGE_NS : HOLD_NS);
    sw_info("QP 0x%x: iWARP, FPDUs of %u bytes%s, READs %u in and %u out", qp->qpn,
            c->machine.config.fpdu_max, c->has_crc ? " with CRC" : "", c->machine.config.ird,
            c->machine.config.ord);
    if (!begin->len || sw_iwarp_take_bytes(c, begin->bytes, begin->len) == SW_IWARP_ALIVE)
        sw_iwarp_drive(qp); /* says that it is ready */
    return 0;
}

int sw_iwarp_begin(uint32_t qpn, const struct sw_iwarp_begin *begin)
{
    int rc = -EINVAL;
    pthread_mutex_lock(&sw_nic.lock);
    struct sw_qp *qp = sw_qp_find(qpn);
    if (qp) {
        sw_lock_acquire(&qp->lock);
        rc = begin_locked(qp, begin);
        sw_lock_release(&qp->lock);
    }
    pthread_mutex_unlock(&sw_nic.lock);
    if (!rc)
        sw_engine_kick();
    return rc;
}

bool sw_iwarp_can_begin(uint32_t qpn)
{
    pthread_mutex_lock(&sw_nic.lock);
    struct sw_qp *qp = sw_qp_find(qpn);
    bool can = false;
    if (qp) {
        sw_lock_acquire(&qp->lock);
        can = connection_is_ready(qp);
        sw_lock_release(&qp->lock);
    }
    pthread_mutex_unlock(&sw_nic.lock);
    return can;
}

void sw_iwarp_look(uint32_t qpn)
{
    pthread_mutex_lock(&sw_nic.lock);
    struct sw_qp *qp = sw_qp_find(qpn);
    if (qp) {
        sw_lock_acquire(&qp->lock);
        if (qp->link == &sw_iwarp_qp_ops)
            sw_iwarp_drive(qp);
        sw_lock_release(&qp->lock);
    }
    pthread_mutex_unlock(&sw_nic.lock);
}

void sw_iwarp_hang_up(uint32_t qpn, uint64_t cookie)
{
    pthread_mutex_lock(&sw_nic.lock);
    struct sw_qp *qp = sw_qp_find(qpn);
    if (qp) {
        sw_lock_acquire(&qp->lock);
        struct sw_iwarp_connection *c = qp->link == &sw_iwarp_qp_ops ? qp->link_state : NULL;
        if (c && c->end_note.cookie == cookie)
            sw_iwarp_fail(c, 0);
        sw_lock_release(&qp->lock);
    }
    pthread_mutex_unlock(&sw_nic.lock);
}
