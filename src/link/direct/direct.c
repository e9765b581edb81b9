/* SPDX-License-Identifier: BSD-2-Clause */
/* The direct link's operations, and its life in the process. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/log.h"
#include "device/nic.h"
#include "device/qp_impl.h"
#include "link/direct/account.h"
#include "link/direct/datagram.h"
#include "link/direct/direct.h"
#include "link/direct/engine.h"
#include "link/link.h"

struct sw_direct sw_direct = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .listener = -1, .doorbell = -1, .epoll = -1};

static void read_mode(void)
{
    const char *mode = getenv("SIDEWIRE_DIRECT");
    sw_direct.modes = (struct sw_direct_modes){true, true, true};
    sw_direct.off = false;
    if (!mode || !*mode || !strcmp(mode, "auto"))
        return;
    if (!strcmp(mode, "mapped"))
        sw_direct.modes.cma = false;
    else if (!strcmp(mode, "cma"))
        sw_direct.modes.mapped = false;
    else if (!strcmp(mode, "ring"))
        sw_direct.modes.mapped = sw_direct.modes.cma = false;
    else if (!strcmp(mode, "off"))
        sw_direct.off = true;
    else
        sw_warn("SIDEWIRE_DIRECT=%s is not auto, mapped, cma, ring or off; using auto", mode);
}

/* What a fork left of the parent's link: descriptors are closed, mappings go. */
static void forget_parent(void)
{
    if (!sw_direct.running)
        return;
    sw_datagram_send_fork_child();
    sw_datagram_receive_fork_child();
    sw_multicast_fork_child();
    pthread_mutex_init(&sw_direct.lock, NULL);
    close(sw_direct.listener);
    close(sw_direct.doorbell);
    close(sw_direct.epoll);
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
    sw_direct.listener = sw_direct.doorbell = sw_direct.epoll = -1;
    atomic_store(&sw_direct.idle, false);
    atomic_store(&sw_direct.work, false);
    sw_direct.running = false;
}

static int start(void)
{
    read_mode();
#ifdef PR_SET_PTRACER
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0,
          0); /* Yama: let peers of this user use process_vm_* */
#endif
    int rc = sw_registry_claim(&sw_direct.listener, &sw_nic.slot);
    return rc ? rc : sw_engine_start();
}

static bool write_now(struct sw_qp *qp, const struct ibv_send_wr *wr)
{
    struct sw_direct_qp *d = qp->link_state;
    return d && sw_onesided_now(qp, d, wr);
}

static void send_queue(struct sw_qp *qp)
{
    if (qp->rules->is_datagram) {
        sw_datagram_run(qp);
        return;
    }
    struct sw_direct_qp *d = qp->link_state;
    if (d)
        sw_requester_run(qp, d);
}

bool sw_direct_drive(struct sw_qp *qp)
{
    if (qp->rules->is_datagram) {
        sw_datagram_run(qp);
        return false;
    }
    struct sw_direct_qp *d = qp->link_state;
    if (!d)
        return false;
    bool any = d->rx && sw_responder_run(qp, d);
    if (qp->link_state == d && qp->sq.head != qp->sq.tail)
        sw_requester_run(qp, d);
    return any;
}

static void progress(struct sw_qp *qp)
{
    sw_direct_drive(qp);
}

static int connect_qp(struct sw_qp *qp)
{
    if (!qp->rules->is_datagram)
        return sw_bind_connect(qp);
    sw_datagram_enter(qp);
    sw_qp_publish(qp, qp->state);
    return 0;
}

static void traffic(struct sw_qp *qp, struct sw_traffic *out)
{
    if (qp->link_state && !qp->rules->is_datagram)
        sw_account_read(qp->link_state, out);
}

static const struct sw_link_ops direct_ops = {
    .start = start,
    .qp_connect = connect_qp,
    .qp_disconnect = sw_bind_disconnect,
    .write_now = write_now,
    .send = send_queue,
    .progress = progress,
    .receive = sw_datagram_receive,
    .has_datagrams = sw_datagram_any,
    .qp_forget = sw_datagram_forget,
    .group_join = sw_multicast_join,
    .group_leave = sw_multicast_leave,
    .traffic = traffic,
    .quiesce = sw_inbox_wait_all,
    .segment_gone = sw_attach_segment_gone,
    .fork_child = forget_parent,
    .kick = sw_engine_kick,
};

static void set_link(void)
{
    sw_nic_set_link(&direct_ops);
}

void sw_link_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_link);
}
