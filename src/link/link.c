/* SPDX-License-Identifier: BSD-2-Clause */
/* The links of the process, and which of them a queue pair uses. */

#include "link/link.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "device/nic/netdev.h"
#include "device/nic/nic.h"
#include "device/queue/qp_impl.h"
#include "link/direct/datagram/multicast.h"
#include "link/direct/datagram/receive.h"
#include "link/direct/direct.h"
#include "link/direct/process/attach.h"
#include "link/direct/process/domain.h"
#include "link/direct/process/hold.h"
#include "link/direct/process/inbox.h"
#include "link/direct/process/peer.h"
#include "link/direct/process/state.h"
#include "link/engine.h"
#include "link/faults/live.h"
#include "link/iwarp/iwarp.h"
#include "link/paired/callers.h"
#include "link/paired/datagrams.h"
#include "link/paired/paired.h"
#include "link/paired/trial.h"
#include "link/roce/datagram.h"
#include "link/roce/group.h"
#include "link/roce/liveness/lifeline.h"
#include "link/roce/port/port.h"
#include "link/roce/qp/qp.h"
#include "link/roce/roce.h"

#define LISTEN_TRIES 64 /* of a lock that is held for a post or a delivery */

static enum { LINK_AUTO, LINK_DIRECT, LINK_ROCE, LINK_TCP } mode;

static atomic_bool has_strangers; /* on this host */
static atomic_bool is_to_listen;  /* queue pairs that were there before the first of them */

static void read_mode(void)
{
    const char *text = getenv("SIDEWIRE_LINK");
    mode = LINK_AUTO;
    if (!text || !*text || !strcmp(text, "auto"))
        return;
    if (!strcmp(text, "direct"))
        mode = LINK_DIRECT;
    else if (!strcmp(text, "roce"))
        mode = LINK_ROCE;
    else if (!strcmp(text, "tcp"))
        mode = LINK_TCP;
    else if (strcmp(text, "iwarp") != 0) /* that is of devices: device/nic/netdev.c */
        sw_warn("SIDEWIRE_LINK=%s is not auto, direct, roce, tcp or iwarp; using auto", text);
}

static const struct sw_engine_part engine_part;

static int start_links(void)
{
    sw_faults_start();
    int rc = sw_engine_open();
    if (rc)
        return rc;
    read_mode();
    sw_direct.has_packets = mode != LINK_DIRECT;
    sw_engine_add(&engine_part);
    sw_roce_start();
    sw_iwarp_start();
    sw_paired_start();
    if (mode == LINK_TCP)
        sw_paired_datagrams_start(true);
    else if (mode == LINK_AUTO)
        sw_paired_trials_start();
    if (sw_paired_trials_are_on())
        sw_paired_datagrams_start(false);
    rc = sw_direct_start();
    if (!rc)
        rc = sw_engine_start();
    if (rc)
        sw_engine_close();
    return rc;
}

static void link_fork_child(void)
{
    if (!sw_engine.running)
        return;
    sw_roce_fork_child();
    sw_paired_fork_child();
    sw_iwarp_fork_child();
    sw_direct_fork_child();
    atomic_store(&has_strangers, false);
    atomic_store(&is_to_listen, false);
    sw_engine_close();
}

/* Whether peers of this host are reached the direct way, and others by packets or TCP. */
static bool is_mixed(void)
{
    return mode == LINK_AUTO || mode == LINK_TCP;
}

/* Whether the peer is on another host, or in another container of this one, which is to be reached
 * as if it were. One of another user would be out of reach by either link: users cannot share the
 * UDP port. */
static bool link_is_far(const struct sw_qp *qp)
{
    if (!is_mixed())
        return mode == LINK_ROCE;
    if (sw_direct.off || !sw_netdev_is_local_gid(&qp->attr.ah_attr.grh.dgid))
        return true;
    return sw_peer_is_refused(sw_qpn_slot(qp->dest_qpn)) && sw_roce_open(false) == 0;
}

static struct sw_peer *link_meet_peer(uint32_t dest_qpn, const union ibv_gid *dgid)
{
    if (!is_mixed() || sw_direct.off || !sw_netdev_is_local_gid(dgid))
        return NULL;
    return sw_peer_meet(sw_qpn_slot(dest_qpn));
}

/* Has all opened by which datagrams come from other hosts. */
static int open_far(bool is_needed)
{
    const int rc = mode == LINK_TCP ? sw_paired_listen_start(true) : 0;
    if (sw_paired_trials_are_on())
        sw_paired_listen_start(false);
    return rc ? rc : sw_roce_open(is_needed);
}

/* A UD queue pair may get datagrams from anywhere. The loopback's come from here, by packets only
 * from strangers. */
static void listen_for(struct sw_qp *qp)
{
    struct sw_netdev_info info;
    sw_netdev_read(qp->ctx->netdev, &info);
    const bool is_quiet =
        !strcmp(info.ifname, "lo") && !atomic_load(&has_strangers) && !sw_direct.off;
    if (mode == LINK_DIRECT || (is_mixed() && is_quiet))
        return;
    if (open_far(mode == LINK_ROCE) == 0)
        sw_roce_list(qp);
}

/* Whether all have been seen to: a holder of a queue pair's lock may want the NIC's. */
static bool listen_for_all(void)
{
    sw_mutex_assert_held(&sw_nic.lock);
    bool all = true;
    for (uint32_t i = sw_nic_first_qp(); i < SW_MAX_QP; i = sw_nic_next_qp(i)) {
        struct sw_qp *qp = sw_nic.qps[i];
        if (!qp->rules->is_datagram || sw_roce_is_listed(qp))
            continue;
        if (!sw_lock_try(&qp->lock)) {
            all = false;
            continue;
        }
        if (qp->state >= IBV_QPS_RTR && qp->state != IBV_QPS_ERR)
            listen_for(qp);
        sw_lock_release(&qp->lock);
    }
    return all;
}

static void catch_up_listening(void)
{
    for (int tries = 0; tries < LISTEN_TRIES && atomic_load(&is_to_listen); tries++) {
        pthread_mutex_lock(&sw_nic.lock);
        if (listen_for_all())
            atomic_store(&is_to_listen, false);
        pthread_mutex_unlock(&sw_nic.lock);
        if (atomic_load(&is_to_listen))
            sched_yield();
    }
}

void sw_link_meet_stranger(void)
{
    if (!is_mixed() || atomic_load(&has_strangers))
        return;
    atomic_store(&has_strangers, true); /* who becomes ready to receive from here on, sees to it */
    atomic_store(&is_to_listen, true);
    sw_roce_group_hear_loopback();
    catch_up_listening();
}

static uint64_t step_links(uint64_t now_ns)
{
    catch_up_listening();
    return atomic_load(&is_to_listen) ? now_ns + SW_NS_PER_MS : UINT64_MAX;
}

static bool link_wants_step(void)
{
    return atomic_load(&is_to_listen);
}

static const struct sw_engine_part engine_part = {.step = step_links, .wants = link_wants_step};

enum sw_link_sent sw_link_send_far(struct sw_qp *qp, uint32_t position)
{
    return sw_roce_send_datagram(qp, position);
}

void sw_link_send_to_group(struct sw_qp *qp, uint32_t position, bool has_far)
{
    if (has_far)
        sw_roce_group_loop();
    if (has_far || sw_roce_is_listed(qp))
        sw_roce_send_datagram(qp, position);
}

bool sw_link_group_travels(const struct sw_qp *qp, const struct sw_path *path)
{
    return sw_roce_group_travels(qp->ctx->netdev, path);
}

enum sw_link_sent sw_link_give_to_group(struct sw_qp *qp, uint32_t position, const uint16_t *slots,
                                        uint32_t count)
{
    return sw_roce_give_datagram(qp, position, slots, count);
}

bool sw_link_is_far(bool is_local)
{
    return mode == LINK_ROCE || (is_mixed() && (!is_local || sw_direct.off));
}

bool sw_link_has_direct(void)
{
    return !sw_direct.off;
}

bool sw_link_brings(uint32_t slot)
{
    return !sw_direct.off && (slot == sw_nic.slot || sw_inbox_has_client(slot));
}

int sw_link_way_to(const union ibv_gid *gid)
{
    const bool is_local = sw_netdev_is_local_gid(gid);
    if (is_mixed())
        return sw_direct.off || !is_local;
    return mode == LINK_ROCE ? 1 : is_local ? 0 : -ENETUNREACH;
}

int sw_link_open_far(void)
{
    return open_far(true);
}

static bool link_is_loopback(const struct in6_addr *address)
{
    return IN6_IS_ADDR_LOOPBACK(address) ||
           (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == 127);
}

/* One of this host, not all of them. */
static bool is_one_address(const struct in6_addr *address)
{
    static const struct in6_addr any_v4 = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    return !IN6_IS_ADDR_UNSPECIFIED(address) && !IN6_ARE_ADDR_EQUAL(address, &any_v4);
}

int sw_link_listen_far(const struct in6_addr *address)
{
    if (mode == LINK_DIRECT || (is_mixed() && link_is_loopback(address) && !sw_direct.off))
        return 0;
    int rc = open_far(mode == LINK_ROCE);
    if (!rc && is_one_address(address) && sw_port_is_kept_out(&sw_roce.port, address))
        rc = -EADDRINUSE;
    if (rc == -EADDRINUSE && is_one_address(address))
        sw_port_tell_holder(SW_ROCE_PORT, IN6_IS_ADDR_V4MAPPED(address));
    else if (rc && is_mixed())
        sw_info("UDP port %u cannot be had (%s): other hosts cannot connect to this one",
                SW_ROCE_PORT, strerror(-rc));
    return is_mixed() ? 0 : rc;
}

/* Where its packets find no answer it may be called by TCP. Another program may have that port:
 * then it can only call. */
static const struct sw_qp_ops *choose_far(const struct sw_qp *qp)
{
    if (mode == LINK_TCP)
        return &sw_paired_qp_ops;
    if (qp->type == IBV_QPT_RC && sw_paired_trials_are_on())
        sw_paired_listen_start(false);
    return &sw_roce_qp_ops;
}

/* Before it is connected a queue pair does the same for all links: nothing. */
static const struct sw_qp_ops *choose_link(struct sw_qp *qp)
{
    const bool connects = qp->state == IBV_QPS_RTR;
    if (qp->rules->is_iwarp)
        return &sw_iwarp_qp_ops;
    if (connects && qp->rules->is_datagram)
        listen_for(qp);
    else if (connects && link_is_far(qp))
        return choose_far(qp);
    return sw_faults_live ? &sw_direct_gated_ops : &sw_direct_qp_ops;
}

static void forget_qp(struct sw_qp *qp)
{
    if (qp->rules->is_datagram) {
        sw_datagram_forget(qp);
        sw_paired_datagrams_settle();
    }
    sw_roce_forget(qp);
}

static const struct sw_link_ops ops = {
    .start = start_links,
    .choose = choose_link,
    .meet = link_meet_peer,
    .part = sw_peer_put,
    .receive = sw_datagram_receive,
    .has_datagrams = sw_datagram_any,
    .qp_forget = forget_qp,
    .poll = sw_roce_poll,
    .mind = sw_roce_mind,
    .catch_up = sw_roce_catch_up,
    .group_join = sw_multicast_join,
    .group_leave = sw_multicast_leave,
    .group_hear = sw_roce_group_hear,
    .group_unhear = sw_roce_group_unhear,
    .domain_announce = sw_domain_announce,
    .target_open = sw_hold_open,
    .target_call = sw_hold_call,
    .quiesce = sw_inbox_wait_all,
    .segment_gone = sw_attach_segment_gone,
    .fork_prepare = sw_lifeline_fork_prepare,
    .fork_parent = sw_lifeline_fork_parent,
    .fork_child = link_fork_child,
    .kick = sw_engine_kick,
};

static void set_link(void)
{
    sw_nic_set_link(&ops);
}

void sw_link_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_link);
}
