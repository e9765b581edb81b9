/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A queue pair that TCP carries. From RTS on it calls its peer until one of the two calls was
 * taken; from RTR on it can be called. All of that is the engine's work.
 */
#include "link/paired/paired.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/minmax.h"
#include "base/random.h"
#include "device/nic/netdev.h"
#include "device/queue/counters.h"
#include "link/connections.h"
#include "link/death.h"
#include "link/engine.h"
#include "link/iwarp/describe.h"
#include "link/paired/call.h"
#include "link/paired/callers.h"
#include "link/paired/datagrams.h"
#include "link/paired/hosts.h"
#include "link/paired/socket.h"
#include "link/paired/trial.h"
#include "link/roce/port/path.h"
#include "wire/ib_time.h"

/* Nobody is given up before this: the peer is a program among others, and TCP's first
 * retransmission takes a second. */
#define STRANGER_MIN_NS (5 * SW_NS_PER_S)
#define FAMILIAR_MIN_NS (500 * SW_NS_PER_MS)
#define DEATH_NS (100 * SW_NS_PER_MS) /* that an idle queue pair outlives its peer */
#define CONNECTION_MIN_NS (5 * SW_NS_PER_S)
#define TRIAL_NS (100 * SW_NS_PER_MS) /* that an interrupted trial waits */
#define EXIT_NS (50 * SW_NS_PER_MS)   /* for what other threads do when the program ends */

static struct sw_paired *pairings[SW_MAX_QP]; /* each under its queue pair's lock */
static struct sw_qp_set unsettled;            /* that have no connection */
static _Atomic uint64_t look_ns = UINT64_MAX; /* when the engine looks at these */

struct sw_paired *sw_paired_of(const struct sw_qp *qp)
{
    struct sw_paired *p = pairings[qp->index];
    return p && (p->is_trial || qp->link == &sw_paired_qp_ops) ? p : NULL;
}

bool sw_paired_is_lower(const struct sw_paired *p)
{
    const int order = memcmp(&p->own, &p->peer, sizeof(p->own));
    return order ? order < 0 : p->qp->qpn < p->qp->dest_qpn;
}

bool sw_paired_is_own(const struct sw_paired *p)
{
    return p->qp->qpn == p->qp->dest_qpn && IN6_ARE_ADDR_EQUAL(&p->own, &p->peer);
}

struct sw_iwarp_start_config sw_paired_config(const uint8_t private_data[SW_PAIRING_BYTES])
{
    return (struct sw_iwarp_start_config){
        .revision = 2,
        .wants_crc = sw_iwarp_wants_crc(),
        .wants_large = true,
        .ird = SW_MPA_DEPTH_MAX,
        .ord = SW_MPA_DEPTH_MAX,
        .private_len = SW_PAIRING_BYTES,
        .private_data = private_data,
    };
}

/* How long a request waits for a peer that does not answer; UINT64_MAX: for ever. */
static uint64_t patience_of(const struct sw_qp *qp, uint64_t least_ns)
{
    if (!qp->attr.timeout)
        return UINT64_MAX;
    return sw_max_u64(least_ns, sw_ib_time_ns(qp->attr.timeout) * (qp->attr.retry_cnt + 1u));
}

static void link_paired_look_by(uint64_t at_ns)
{
    uint64_t seen = atomic_load(&look_ns);
    while (at_ns < seen && !atomic_compare_exchange_weak(&look_ns, &seen, at_ns))
        ;
}

static void plan_look(uint64_t at_ns)
{
    link_paired_look_by(at_ns);
    if (!sw_engine_is_self())
        sw_engine_kick();
}

/* There is no connection any more, and the queue pair still has its pairing: a peer is waited for,
 * or called. */
static void miss_connection(struct sw_paired *p)
{
    struct sw_qp *qp = p->qp;
    const uint64_t now_ns = sw_clock_ns();
    p->waits_ns = qp->sq.head != qp->sq.tail ? now_ns : 0;
    p->died_ns = p->outcome.is_dead ? now_ns : 0;
    p->is_told = p->outcome.is_told;
    if (p->outcome.has_begun)
        sw_paired_plan_inquiry(p, now_ns);
    sw_qp_set_add(&unsettled, qp->index);
    atomic_store(&qp->tx_pending, false);
    plan_look(0);
}

static uint16_t skills_of(const struct sw_iwarp_start *start)
{
    struct sw_pairing peer;
    return sw_pairing_decode(start->peer.private_data, start->peer.private_len, &peer) ? peer.skills
                                                                                       : 0;
}

int sw_paired_begin(struct sw_paired *p, int fd, const struct sw_iwarp_start *start,
                    bool is_initiator, const uint8_t *bytes, size_t len)
{
    struct sw_qp *qp = p->qp;
    const struct sw_iwarp_begin begin = {
        .fd = fd,
        .terms = start->terms,
        .is_initiator = is_initiator,
        .is_paired = true,
        .outcome = &p->outcome,
        .peer_skills = skills_of(start),
        .bytes = bytes,
        .len = len,
    };
    if (!sw_paired_tell_trial(p, SW_FALLBACK_TAKEN))
        return -EBUSY;
    if (p->is_trial)
        sw_paired_take_over(p);
    const uint64_t patience_ns = patience_of(qp, CONNECTION_MIN_NS);
    char text[SW_ROCE_ADDRESS_TEXT];
    sw_paired_set_patience(fd, patience_ns == UINT64_MAX ? 0 : patience_ns);
    sw_info("QP 0x%x: over TCP to QP 0x%x at %s, port %u%s", qp->qpn, qp->dest_qpn,
            sw_roce_address_text(&p->peer, text), sw_paired_port(),
            start->terms.crc ? ", with CRCs" : "");
    sw_qp_set_remove(&unsettled, qp->index);
    p->was_met = true;
    p->waits_ns = 0;
    sw_counter_add(qp->ctx->netdev, SW_TCP_CONNECTIONS);
    const int rc = sw_iwarp_begin_paired(qp, &begin);
    if (!qp->link_state && pairings[qp->index] == p) /* it has ended already */
        miss_connection(p);
    return rc;
}

/* ---- the engine ---- */

/* An answer that came while this process got no processor counts, however late it is seen. */
static uint64_t step_call(struct sw_paired *p, uint64_t now_ns)
{
    const struct sw_qp *qp = p->qp;
    if (p->fd >= 0 && p->is_asked && now_ns >= p->start.due_ns) {
        sw_paired_call_ready(p, now_ns);
        p = sw_paired_of(qp); /* which may have failed */
        if (!p || (!p->is_trial && qp->link_state))
            return UINT64_MAX;
        if (p->died_ns)
            return now_ns;
    }
    if (p->fd >= 0 && now_ns >= p->start.due_ns)
        sw_paired_miss_call(p, now_ns);
    if (p->fd < 0 && now_ns >= p->again_ns)
        sw_paired_call(p, now_ns);
    return p->fd >= 0 ? p->start.due_ns : p->again_ns;
}

/* RoCE's timers say when its requests end. */
static uint64_t step_trial(struct sw_paired *p, uint64_t now_ns)
{
    if (!sw_paired_is_vain(p))
        return p->qp->state == IBV_QPS_RTS ? step_call(p, now_ns) : now_ns + TRIAL_NS;
    sw_paired_remove(p);
    return UINT64_MAX;
}

/* Returns when to look again. A program that rdma_cm tells gets its event first. */
static uint64_t paired_end_with_peer(struct sw_paired *p, uint64_t now_ns)
{
    const uint64_t end_ns = p->is_told    ? p->died_ns + SW_DEATH_TOLD_FIRST_NS
                            : p->waits_ns ? p->died_ns
                                          : p->died_ns + DEATH_NS;
    if (now_ns < end_ns)
        return end_ns;
    sw_death_end(p->qp, IBV_WC_RETRY_EXC_ERR); /* which frees the pairing */
    return UINT64_MAX;
}

/* The peer's calls are waited for, or there are none any more. */
static uint64_t step_inquiry(struct sw_paired *p, uint64_t now_ns)
{
    return p->outcome.has_begun && !sw_death_is_heard() ? UINT64_MAX : step_call(p, now_ns);
}

/* Returns when to look again. */
static uint64_t step_pairing(struct sw_paired *p, uint64_t now_ns)
{
    struct sw_qp *qp = p->qp;
    uint64_t next_ns = UINT64_MAX;
    if (p->is_trial)
        return step_trial(p, now_ns);
    if (qp->link_state)
        return UINT64_MAX;
    if (qp->sq.head == qp->sq.tail) {
        p->waits_ns = 0;
    } else if (!p->waits_ns) {
        p->waits_ns = now_ns;
    }
    if (p->died_ns) {
        const bool has_left = p->outcome.has_begun && !p->outcome.is_dead;
        p->is_told = p->is_told || sw_death_tell(qp);
        if (!has_left)
            return paired_end_with_peer(p, now_ns);
    }
    if (p->waits_ns) {
        const uint64_t least_ns = p->outcome.has_begun ? FAMILIAR_MIN_NS : STRANGER_MIN_NS;
        const uint64_t patience_ns = patience_of(qp, least_ns);
        next_ns = patience_ns == UINT64_MAX ? UINT64_MAX : p->waits_ns + patience_ns;
        if (now_ns >= next_ns) {
            sw_info("QP 0x%x: no answer to TCP port %u", qp->qpn, sw_paired_port());
            sw_death_end(qp, IBV_WC_RETRY_EXC_ERR);
            return UINT64_MAX;
        }
    }
    if (sw_paired_is_own(p) || p->died_ns)
        return next_ns;
    if (p->is_inquiry)
        return sw_min_u64(next_ns, step_inquiry(p, now_ns));
    return qp->state == IBV_QPS_RTS ? sw_min_u64(next_ns, step_call(p, now_ns)) : next_ns;
}

static uint64_t step_pairings(uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;
    if (now_ns < atomic_load(&look_ns))
        return atomic_load(&look_ns);
    atomic_store(&look_ns, UINT64_MAX);
    pthread_mutex_lock(&sw_nic.lock);
    for (uint32_t i = sw_qp_set_next(&unsettled, 0); i < SW_MAX_QP;
         i = sw_qp_set_next(&unsettled, i + 1)) {
        struct sw_qp *qp = sw_nic.qps[i];
        if (!qp)
            continue;
        sw_lock_acquire(&qp->lock);
        struct sw_paired *p = sw_paired_of(qp);
        if (p)
            next_ns = sw_min_u64(next_ns, step_pairing(p, now_ns));
        sw_lock_release(&qp->lock);
    }
    pthread_mutex_unlock(&sw_nic.lock);
    link_paired_look_by(next_ns);
    return atomic_load(&look_ns);
}

static uint64_t paired_step_link(uint64_t now_ns)
{
    const uint64_t next_ns = sw_min_u64(step_pairings(now_ns), sw_paired_step_callers(now_ns));
    const uint64_t moved_ns = sw_paired_step_moved(now_ns);
    return sw_min_u64(sw_min_u64(next_ns, moved_ns), sw_paired_step_datagrams(now_ns));
}

static bool paired_wants_step(void)
{
    return atomic_load(&look_ns) == 0;
}

static void drive_call(uint32_t index)
{
    pthread_mutex_lock(&sw_nic.lock);
    struct sw_qp *qp = index < SW_MAX_QP ? sw_nic.qps[index] : NULL;
    if (qp) {
        sw_lock_acquire(&qp->lock);
        struct sw_paired *p = sw_paired_of(qp);
        if (p && p->fd >= 0)
            sw_paired_call_ready(p, sw_clock_ns());
        p = sw_paired_of(qp); /* which may have failed */
        if (p && (p->is_trial || !qp->link_state))
            plan_look(p->died_ns ? 0 : p->fd < 0 ? p->again_ns : p->start.due_ns);
        sw_lock_release(&qp->lock);
    }
    pthread_mutex_unlock(&sw_nic.lock);
}

static void paired_on_event(uint64_t what)
{
    const uint32_t number = (uint32_t)(what >> (4 + SW_IWARP_TAG_SHIFT));
    switch ((enum sw_paired_tag)(what >> 4 & 7)) {
    case SW_PAIRED_CONNECTION:
        sw_engine_drive(number, &sw_paired_qp_ops);
        break;
    case SW_PAIRED_CALL:
        drive_call(number);
        break;
    case SW_PAIRED_CALLER:
        sw_paired_caller_ready(number);
        break;
    case SW_PAIRED_LISTENER:
        sw_paired_listen_ready(number);
        break;
    case SW_PAIRED_DATAGRAMS:
        sw_paired_datagrams_ready(number);
        break;
    }
}

static const struct sw_engine_part part = {.step = paired_step_link, .wants = paired_wants_step};

void sw_paired_start(void)
{
    sw_paired_read_settings();
    sw_engine_handle(SW_WATCH_PAIRED, paired_on_event);
    sw_engine_add(&part);
}

/* ---- a queue pair ---- */

static int aim_pairing(struct sw_paired *p)
{
    const struct ibv_ah_attr *ah = &p->qp->attr.ah_attr;
    struct sw_netdev_info info;
    struct sw_roce_path path;
    struct sw_gid own;
    if (!sw_netdev_gid(p->qp->ctx->netdev, ah->grh.sgid_index, &own) || !own.valid)
        return -EINVAL;
    sw_netdev_read(p->qp->ctx->netdev, &info);
    const int rc = sw_roce_path_set(&path, own.gid.raw, ah->grh.dgid.raw, info.ifindex);
    p->own = path.source;
    p->peer = path.dest;
    p->scope = path.ifindex;
    return rc;
}

static int add_pairing(struct sw_qp *qp)
{
    struct sw_paired *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->qp = qp;
    p->fd = -1;
    p->claimed_psn = SW_PAIRING_PSN_OPEN;
    p->nonce = sw_random64();
    const int rc = aim_pairing(p);
    if (rc) {
        free(p);
        return rc;
    }
    pairings[qp->index] = p;
    sw_qp_set_add(&unsettled, qp->index);
    return 0;
}

struct sw_paired *sw_paired_add(struct sw_qp *qp)
{
    return add_pairing(qp) ? NULL : pairings[qp->index];
}

void sw_paired_remove(struct sw_paired *p)
{
    sw_paired_drop_call(p);
    pairings[p->qp->index] = NULL;
    sw_qp_set_remove(&unsettled, p->qp->index);
    free(p);
}

void sw_paired_look(void)
{
    plan_look(0);
}

static int paired_connect_qp(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    if (qp->type != IBV_QPT_RC) {
        sw_error("QP 0x%x: TCP carries RC queue pairs alone to other hosts", qp->qpn);
        return -EOPNOTSUPP;
    }
    int rc = sw_paired_listen_start(true);
    if (!rc)
        rc = add_pairing(qp);
    if (rc)
        return rc;
    sw_qp_publish(qp, qp->state);
    struct sw_paired *p = pairings[qp->index];
    sw_paired_plan_inquiry(p, sw_clock_ns());
    plan_look(p->again_ns);
    return 0;
}

static void paired_disconnect_qp(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_paired *p = pairings[qp->index];
    if (!p)
        return;
    sw_paired_remove(p);
    sw_iwarp_disconnect(qp);
    sw_qp_publish(qp, IBV_QPS_RESET);
}

/* RTS: it is known now what this side sends first. A peer that expects something else is not the
 * one that was meant. */
static void change_qp(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_paired *p = pairings[qp->index];
    if (!p)
        return;
    if (p->claimed_psn != SW_PAIRING_PSN_OPEN && p->claimed_psn != qp->attr.sq_psn) {
        sw_info("QP 0x%x: its peer expects another PSN", qp->qpn);
        sw_iwarp_disconnect(qp);
        p->claimed_psn = SW_PAIRING_PSN_OPEN;
        miss_connection(p);
    }
    sw_iwarp_change_paired(qp);
    if (!p->outcome.has_begun)
        sw_paired_end_inquiry(p);
    if (!qp->link_state)
        plan_look(0);
}

static void paired_start_sends(struct sw_qp *qp)
{
    struct sw_paired *p = pairings[qp->index];
    if (qp->link_state) {
        sw_iwarp_start_sends(qp);
    } else if (p && !p->waits_ns) {
        p->waits_ns = sw_clock_ns();
        sw_qp_set_add(&unsettled, qp->index); /* the peer may have let go */
        plan_look(0);
    }
}

static void paired_drive_qp(struct sw_qp *qp)
{
    struct sw_paired *p = pairings[qp->index];
    const bool had = qp->link_state;
    sw_iwarp_drive(qp);
    if (had && !qp->link_state && p && p == pairings[qp->index])
        miss_connection(p);
}

static void paired_read_traffic(struct sw_qp *qp, struct sw_traffic *out)
{
    (void)qp;
    *out = (struct sw_traffic){0}; /* qp->moved is kept up to date */
}

void sw_paired_describe(const struct sw_qp *qp, struct sw_connection *out)
{
    sw_lock_assert_held(&qp->lock);
    const struct sw_paired *p = sw_paired_of(qp);
    const uint64_t now_ns = sw_clock_ns();
    if (p && p->has_moved)
        out->flags |= SW_CONNECTION_HAS_MOVED;
    if (qp->link_state) {
        sw_iwarp_describe_paired(qp, out);
    } else if (p && qp->sq.head != qp->sq.tail) {
        const uint64_t patience_ns =
            patience_of(qp, p->outcome.has_begun ? FAMILIAR_MIN_NS : STRANGER_MIN_NS);
        out->wait = SW_CONNECTION_WAITS_MEETING;
        if (p->waits_ns && now_ns > p->waits_ns)
            out->waited_ms = (uint32_t)((now_ns - p->waits_ns) / SW_NS_PER_MS);
        if (patience_ns != UINT64_MAX)
            out->end_ms = (uint32_t)sw_min_u64(patience_ns / SW_NS_PER_MS, UINT32_MAX);
    }
}

const struct sw_qp_ops sw_paired_qp_ops = {
    .connect = paired_connect_qp,
    .disconnect = paired_disconnect_qp,
    .changed = change_qp,
    .send = paired_start_sends,
    .progress = paired_drive_qp,
    .traffic = paired_read_traffic,
};

/* Not for ever: it may be this thread that holds the lock, in a signal handler. */
static bool lock_nic_at_exit(void)
{
    const uint64_t until_ns = sw_clock_ns() + EXIT_NS;
    int rc;
    while ((rc = pthread_mutex_trylock(&sw_nic.lock)) && sw_clock_ns() < until_ns)
        sched_yield();
    return !rc;
}

/* A program may end with the message that it waited for: its peer waits to hear that it came.
 * Other threads of it may still destroy queue pairs. */
__attribute__((destructor)) static void answer_at_exit(void)
{
    if (!sw_nic.linked || !lock_nic_at_exit())
        return;
    for (uint32_t i = sw_nic_first_qp(); i < SW_MAX_QP; i = sw_nic_next_qp(i)) {
        struct sw_qp *qp = sw_nic.qps[i];
        if (!qp || qp->link != &sw_paired_qp_ops || !sw_lock_try(&qp->lock))
            continue;
        if (pairings[i])
            sw_iwarp_tell_at_exit(qp);
        sw_lock_release(&qp->lock);
    }
    pthread_mutex_unlock(&sw_nic.lock);
}

/* The connections are its parent's. */
void sw_paired_fork_child(void)
{
    for (uint32_t i = sw_nic_first_qp(); i < SW_MAX_QP; i = sw_nic_next_qp(i)) {
        if (!pairings[i])
            continue;
        if (pairings[i]->fd >= 0)
            close(pairings[i]->fd);
        if (sw_nic.qps[i] && sw_nic.qps[i]->link == &sw_paired_qp_ops)
            sw_iwarp_close_fd(sw_nic.qps[i]);
        pairings[i] = NULL;
        sw_qp_set_remove(&unsettled, i);
    }
    atomic_store(&look_ns, UINT64_MAX);
    sw_paired_listen_stop();
    sw_paired_trials_fork_child();
    sw_hosts_fork_child();
    sw_paired_datagrams_fork_child();
}
