/* SPDX-License-Identifier: BSD-2-Clause */
/* The direct link's operations, and its life in the process. */
#include "link/direct/direct.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/minmax.h"
#include "device/nic/nic.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/account.h"
#include "link/direct/bind/bind.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/death.h"
#include "link/direct/bind/lane.h"
#include "link/direct/datagram/channel.h"
#include "link/direct/datagram/multicast.h"
#include "link/direct/datagram/receive.h"
#include "link/direct/datagram/send.h"
#include "link/direct/process/attach.h"
#include "link/direct/process/hold.h"
#include "link/direct/process/inbox.h"
#include "link/direct/process/newcomer.h"
#include "link/direct/process/peer.h"
#include "link/direct/process/state.h"
#include "link/direct/send/ahead.h"
#include "link/direct/send/fault_gate.h"
#include "link/direct/send/requester.h"
#include "link/direct/serve/responder.h"
#include "link/engine.h"
#include "link/names/registry.h"

/* What a fork left of the parent's link: descriptors are closed, mappings go. */
void sw_direct_fork_child(void)
{
    sw_hold_fork_child();
    sw_newcomer_fork_child();
    sw_channel_fork_child();
    sw_datagram_receive_fork_child();
    sw_multicast_fork_child();
    pthread_mutex_init(&sw_direct.lock, NULL);
    sw_direct.list_lock = (struct sw_lock){0};
    close(sw_direct.listener);
    for (struct sw_peer *peer = sw_direct.peers, *next; peer; peer = next) {
        next = peer->next;
        pthread_mutex_init(&peer->lock, NULL);
        sw_peer_free(peer);
    }
    for (struct sw_inbox *inbox = sw_direct.inboxes, *next; inbox; inbox = next) {
        next = inbox->next;
        if (inbox->socket >= 0)
            close(inbox->socket);
        sw_inbox_free(inbox);
    }
    sw_direct.peers = NULL;
    sw_direct.inboxes = NULL;
    sw_direct.listener = -1;
    atomic_store(&sw_direct.work, false);
}

static uint64_t direct_step_link(uint64_t now_ns)
{
    atomic_fetch_add_explicit(&sw_direct.turns, 1, memory_order_relaxed);
    uint64_t attach_ns = sw_attach_step(now_ns), reap_ns = sw_bind_reap(now_ns);
    sw_lane_step();
    return sw_min_u64(attach_ns, reap_ns);
}

static bool direct_wants_step(void)
{
    return atomic_load(&sw_direct.work);
}

static bool direct_was_busy(void)
{
    return atomic_exchange(&sw_direct.served, false);
}

static const struct sw_engine_part engine_part = {.step = direct_step_link,
                                                  .serve = sw_datagram_serve,
                                                  .wants = direct_wants_step,
                                                  .was_busy = direct_was_busy};

static void direct_on_listener(uint64_t what)
{
    (void)what;
    sw_newcomer_accept();
}

static void on_new(uint64_t what)
{
    sw_newcomer_prove((struct sw_newcomer *)(uintptr_t)what);
}

static void on_proven(uint64_t what)
{
    sw_attach_greet((int)(what >> 4));
}

static void on_client(uint64_t what)
{
    sw_attach_from_client((struct sw_inbox *)(uintptr_t)what);
}

static void on_peer(uint64_t what)
{
    sw_attach_from_peer((struct sw_peer *)(uintptr_t)what);
}

int sw_direct_start(void)
{
    sw_direct_read_modes();
#ifdef PR_SET_PTRACER
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0,
          0); /* Yama: let peers of this user use process_vm_* */
#endif
    int rc = sw_fault_gate_start();
    if (rc)
        return rc;
    rc = sw_registry_claim(&sw_direct.listener, &sw_nic.slot);
    if (rc)
        return rc;
    sw_engine_add(&engine_part);
    sw_engine_handle(SW_WATCH_LISTENER, direct_on_listener);
    sw_engine_handle(SW_WATCH_NEW, on_new);
    sw_engine_handle(SW_WATCH_PROVEN, on_proven);
    sw_engine_handle(SW_WATCH_CLIENT, on_client);
    sw_engine_handle(SW_WATCH_PEER, on_peer);
    sw_engine_handle(SW_WATCH_HOLD, sw_hold_ready);
    sw_engine_watch(sw_direct.listener, NULL, SW_WATCH_LISTENER);
    return 0;
}

static uint32_t execute_now(struct sw_qp *qp, const struct ibv_send_wr *wr, uint32_t most,
                            uint32_t *sent)
{
    struct sw_direct_qp *d = qp->link_state;
    if (qp->rules->is_datagram)
        return sw_datagram_ahead(qp, wr, most);
    return d ? sw_ahead_run(qp, d, wr, most, sent) : 0;
}

static void send_queue(struct sw_qp *qp)
{
    if (qp->rules->is_datagram) {
        sw_datagram_run(qp);
        return;
    }
    struct sw_direct_qp *d = qp->link_state;
    if (d)
        sw_direct_send_push(qp, d);
}

bool sw_direct_drive(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    if (qp->rules->is_datagram) {
        sw_datagram_run(qp);
        return false;
    }
    struct sw_direct_qp *d = qp->link_state;
    if (!d)
        return false;
    bool any = d->rx && sw_serve_run(qp, d);
    if (qp->link_state == d && qp->sq.head != qp->sq.tail)
        sw_direct_send_run(qp, d);
    return any;
}

static void direct_drive_qp(struct sw_qp *qp)
{
    sw_direct_drive(qp);
}

static void ring_sender(struct sw_qp *qp)
{
    const struct sw_direct_qp *d = qp->link_state;
    if (d && d->peer && atomic_load(&d->peer->state) == SW_PEER_READY)
        sw_peer_ring(d->peer);
}

static int direct_connect_qp(struct sw_qp *qp)
{
    sw_fault_gate_reset(qp);
    if (!qp->rules->is_datagram)
        return sw_bind_connect(qp);
    sw_datagram_enter(qp);
    sw_qp_publish(qp, qp->state);
    return 0;
}

static void direct_read_traffic(struct sw_qp *qp, struct sw_traffic *out)
{
    sw_lock_assert_held(&qp->lock);
    if (qp->link_state && !qp->rules->is_datagram)
        sw_account_read(qp->link_state, out);
}

const struct sw_qp_ops sw_direct_qp_ops = {
    .connect = direct_connect_qp,
    .disconnect = sw_bind_disconnect,
    .is_inside = sw_bind_is_inside,
    .execute_now = execute_now,
    .send = send_queue,
    .progress = direct_drive_qp,
    .wake_sender = ring_sender,
    .traffic = direct_read_traffic,
};

/* Where requests pass a gate, none is executed before it is queued. */
const struct sw_qp_ops sw_direct_gated_ops = {
    .connect = direct_connect_qp,
    .disconnect = sw_bind_disconnect,
    .is_inside = sw_bind_is_inside,
    .send = send_queue,
    .progress = direct_drive_qp,
    .traffic = direct_read_traffic,
};

struct sw_direct_qp *sw_direct_of(const struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    bool is_ours = qp->link == &sw_direct_qp_ops || qp->link == &sw_direct_gated_ops;
    return is_ours ? qp->link_state : NULL;
}
