/* SPDX-License-Identifier: BSD-2-Clause */

#include "rdmacm/mads/agent.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/held_signals.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/siphash.h"
#include "cm/cm.h"
#include "device/nic/netdev.h"
#include "device/nic/nic.h"
#include "device/queue/counters.h"
#include "link/death.h"
#include "link/engine.h"
#include "link/link.h"
#include "link/roce/liveness/lifeline.h"
#include "link/roce/mad.h"
#include "link/roce/port/arrival.h"
#include "link/roce/port/mad_slot.h"
#include "link/roce/roce.h"
#include "rdmacm/lock.h"
#include "rdmacm/mads/local.h"
#include "rdmacm/mads/local_connection.h"
#include "rdmacm/mads/local_service.h"
#include "rdmacm/mads/local_successor.h"
#include "rdmacm/mads/ports.h"

static_assert(SW_AGENT_MAD_BYTES == SW_MAD_BYTES, "of the declarations in agent.h");

static const struct sw_agent_user *_Atomic user; /* NULL: this process only hands on */

static _Atomic uint64_t due_ns = UINT64_MAX;     /* when tick() is wanted */
static _Atomic uint64_t planned_ns = UINT64_MAX; /* when the engine will step */

/* What came by packets, from any thread that receives, and answers that the agent gives itself: for
 * the engine, which may take sw_rdmacm_lock. */
#define INTAKE 2048u
#define SOURCES 256u
static struct {
    struct sw_lock lock;
    _Atomic uint32_t produced, consumed;
    struct sw_siphash_key key;
    _Atomic uint16_t of_source[SOURCES]; /* pending MADs of addresses that share a number */
    struct pending {
        struct sw_cm_path path;
        uint32_t source; /* 0: this process itself */
        uint8_t mad[SW_MAD_BYTES];
    } pending[INTAKE];
} intake;

static bool intake_waits(void)
{
    return atomic_load(&intake.produced) != atomic_load(&intake.consumed);
}

/* Addresses have numbers other than 0, which nobody can foresee. Intake locked. */
static uint32_t agent_source_of(const struct sw_cm_path *path)
{
    uint64_t halves[2];
    if (path->slot)
        return 0;
    if (!intake.key.words[0])
        sw_random_fill(&intake.key, sizeof(intake.key));
    memcpy(halves, path->remote_gid, sizeof(halves));
    return (uint32_t)(sw_siphash(&intake.key, halves[0], halves[1]) % (SOURCES - 1)) + 1;
}

/* One address may not have more MADs here than there is room left for others. */
static bool agent_has_room(uint32_t source, uint32_t used)
{
    return used < INTAKE && (!source || atomic_load(&intake.of_source[source]) < INTAKE - used);
}

void sw_agent_count_crowded(const struct sw_cm_path *path, uint64_t count)
{
    union ibv_gid gid;
    memcpy(gid.raw, path->local_gid, sizeof(gid.raw));
    sw_counter_add_many(sw_netdev_with_gid(&gid), SW_RX_DROP_CROWDED, count);
}

/* Lost if there is no room. */
static void put_aside(const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES])
{
    sw_lock_acquire(&intake.lock);
    uint32_t at = atomic_load(&intake.produced), used = at - atomic_load(&intake.consumed);
    const uint32_t source = agent_source_of(path);
    const bool taken = agent_has_room(source, used);
    if (taken) {
        struct pending *pending = &intake.pending[at % INTAKE];
        pending->path = *path;
        pending->source = source;
        memcpy(pending->mad, mad, SW_MAD_BYTES);
        atomic_fetch_add(&intake.of_source[source], 1);
        atomic_store(&intake.produced, at + 1);
    }
    sw_lock_release(&intake.lock);
    if (!taken)
        sw_agent_count_crowded(path, 1);
    if (used == 0 && !sw_engine_is_self())
        sw_engine_kick();
}

static void agent_take_packet(const struct sw_arrival *arrival, const uint8_t mad[SW_MAD_BYTES])
{
    struct sw_cm_path path = {
        .ifindex = arrival->ifindex,
        .pkey = 0xffff,
        .traffic_class = arrival->traffic_class,
        .hop_limit = arrival->hop_limit,
    };
    memcpy(path.local_gid, &arrival->dest, 16);
    memcpy(path.remote_gid, &arrival->source, 16);
    put_aside(&path, mad);
}

/* ---- whom a MAD is for ---- */

/* What a request gets where nobody listens. */
static bool refuse_request(const uint8_t mad[SW_MAD_BYTES], uint8_t answer[SW_MAD_BYTES])
{
    struct sw_cm_message in, out = {0};
    if (sw_cm_mad_decode(mad, SW_MAD_BYTES, &in) != SW_CM_MAD_FAULT_NONE)
        return false;
    out.transaction = in.transaction;
    if (in.attribute == SW_CM_REQ) {
        out.attribute = SW_CM_REJ;
        out.rej.remote_comm_id = in.req.local_comm_id;
        out.rej.about = SW_CM_ABOUT_REQ;
        out.rej.reason = SW_CM_REASON_SERVICE_ID;
    } else {
        out.attribute = SW_CM_SIDR_REP;
        out.sidr_rep.request_id = in.sidr_req.request_id;
        out.sidr_rep.service_id = in.sidr_req.service_id;
        out.sidr_rep.status = SW_CM_SIDR_UNSUPPORTED;
    }
    sw_cm_mad_encode(&out, answer);
    return true;
}

static struct in6_addr agent_address_of(const uint8_t gid[16])
{
    struct in6_addr address;
    memcpy(&address, gid, sizeof(address));
    return address;
}

static void send_packet(const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES])
{
    int rc = sw_roce_send_mad(path->local_gid, path->remote_gid, path->ifindex, path->attempt, mad);
    if (rc)
        sw_debug("connection management: a message cannot be sent: %s", strerror(-rc));
    /* To this host, its kernel may have given it to this very process, which may end now. */
    else if (memcmp(path->local_gid, path->remote_gid, 16) == 0)
        sw_roce_hand_on();
}

static void handle_forks(void);

/* A request that came by packets. */
static void agent_take_request(const struct pending *pending, uint64_t service_id)
{
    const struct in6_addr address = agent_address_of(pending->path.local_gid);
    uint8_t answer[SW_MAD_BYTES];
    handle_forks();
    if (user && user->receive && sw_cm_port_serves(service_id, &address))
        user->receive(&pending->path, pending->mad);
    else if (sw_local_ask(service_id, &address, &pending->path, true, pending->mad) ==
                 -ECONNREFUSED &&
             refuse_request(pending->mad, answer))
        sw_agent_send(&pending->path, answer); /* a stranger's came by no packet */
}

static void take_pending(const struct pending *pending)
{
    uint64_t service_id;
    if (sw_cm_asks(pending->mad, SW_MAD_BYTES, &service_id) && !pending->path.slot)
        agent_take_request(pending, service_id);
    else if (user && user->receive)
        user->receive(&pending->path, pending->mad);
}

/* ---- between processes ---- */

static void receive_local(const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES])
{
    if (user && user->receive)
        user->receive(path, mad);
}

static void gone_local(uint32_t slot)
{
    sw_debug("connection management: the process of slot %u is gone", slot);
    if (user && user->gone)
        user->gone(slot);
}

static void inherit_local(uint32_t slot, int fd)
{
    if (user && user->inherit)
        user->inherit(slot, fd);
    else
        close(fd);
}

/* The process that it asked is gone: as if that had refused. */
static void unanswered_local(uint32_t local_comm_id, const uint8_t peer_gid[16])
{
    struct sw_cm_message out = {
        .attribute = SW_CM_REJ,
        .rej = {.remote_comm_id = local_comm_id,
                .about = SW_CM_ABOUT_REQ,
                .reason = SW_CM_REASON_CONSUMER},
    };
    struct sw_cm_path path = {.slot = (uint16_t)sw_nic.slot};
    uint8_t mad[SW_MAD_BYTES];
    memcpy(path.remote_gid, peer_gid, 16); /* an answer from elsewhere would not be believed */
    sw_cm_mad_encode(&out, mad);
    put_aside(&path, mad);
}

/* A path as the other end sees it. */
static struct sw_cm_path turn_path(const struct sw_cm_path *path)
{
    struct sw_cm_path turned = *path;
    memcpy(turned.local_gid, path->remote_gid, 16);
    memcpy(turned.remote_gid, path->local_gid, 16);
    union ibv_gid gid;
    struct sw_netdev_info info;
    memcpy(gid.raw, path->remote_gid, 16);
    struct sw_netdev *dev = sw_netdev_with_gid(&gid);
    const struct in6_addr address = agent_address_of(path->remote_gid);
    if (dev && !IN6_IS_ADDR_LINKLOCAL(&address)) { /* such an address, several devices may have */
        sw_netdev_read(dev, &info);
        turned.ifindex = info.ifindex;
    }
    return turned;
}

static void send_local(const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES])
{
    const struct sw_cm_path there = turn_path(path);
    const struct in6_addr address = agent_address_of(path->remote_gid);
    uint64_t service_id;
    uint32_t slot = path->slot ? path->slot : sw_roce_mad_slot(mad);
    if (!sw_cm_asks(mad, SW_MAD_BYTES, &service_id)) {
        sw_local_send(slot, &there, mad);
        return;
    }
    if (sw_local_ask(service_id, &address, &there, false, mad) == -ECONNREFUSED)
        sw_agent_refuse(path, mad);
}

/* ---- for the machine ---- */

static int way_to(const struct sw_cm_path *path)
{
    union ibv_gid gid;
    memcpy(gid.raw, path->remote_gid, 16);
    return sw_link_way_to(&gid);
}

void sw_agent_send(const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES])
{
    sw_rdmacm_assert_locked();
    int way = path->slot ? 0 : way_to(path);
    if (way == 0)
        send_local(path, mad);
    else if (way > 0)
        send_packet(path, mad);
}

bool sw_agent_is_far(const struct sw_cm_path *path)
{
    return !path->slot && way_to(path) > 0;
}

void sw_agent_refuse(const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES])
{
    sw_rdmacm_assert_locked();
    uint8_t answer[SW_MAD_BYTES];
    struct sw_cm_path from = *path;
    from.slot = (uint16_t)sw_nic.slot;
    if (refuse_request(mad, answer))
        put_aside(&from, answer);
}

int sw_agent_reaches(const struct sw_cm_path *path)
{
    int way = way_to(path);
    return way > 0 ? sw_link_open_far() : way;
}

static void wake_by(uint64_t at_ns)
{
    if (at_ns < atomic_load(&planned_ns) && !sw_engine_is_self())
        sw_engine_kick();
}

void sw_agent_plan(uint64_t at_ns)
{
    sw_rdmacm_assert_locked();
    if (at_ns < atomic_load(&due_ns))
        atomic_store(&due_ns, at_ns);
    wake_by(at_ns);
}

void sw_agent_call_tick(void)
{
    atomic_store(&due_ns, 0);
    sw_engine_kick();
}

void sw_agent_hand_over(int fd)
{
    sw_rdmacm_assert_locked();
    sw_local_hand_over(fd);
}

uint32_t sw_agent_slot(void)
{
    return sw_nic.slot;
}

/* ---- processes of other hosts ---- */

#define DEATHS 64u /* at once; further ones are learnt by retries */

/* The engine's. */
static struct {
    struct in6_addr address;
    uint32_t slot;
} deaths[DEATHS];
static uint32_t death_count;

static bool note_death(const struct in6_addr *address, uint32_t slot)
{
    if (death_count == DEATHS || !user || !user->gone_far)
        return false;
    deaths[death_count].address = *address;
    deaths[death_count++].slot = slot;
    return true;
}

static void tell_deaths(void)
{
    for (uint32_t i = 0; i < death_count && user && user->gone_far; i++)
        user->gone_far(deaths[i].address.s6_addr, deaths[i].slot);
    death_count = 0;
}

/* Queue pairs over TCP whose peers have died: by index, as there may be many at once. */
static struct sw_qp_set lost;
static atomic_bool has_lost;

static bool hears_losses(void)
{
    return user && user->lost_peer;
}

static bool note_loss(const struct sw_qp *qp)
{
    if (!hears_losses())
        return false;
    sw_qp_set_add(&lost, qp->index);
    atomic_store(&has_lost, true);
    if (!sw_engine_is_self())
        sw_engine_kick();
    return true;
}

static void tell_losses(void)
{
    if (!atomic_exchange(&has_lost, false))
        return;
    for (uint32_t i = sw_qp_set_next(&lost, 0); i < SW_MAX_QP; i = sw_qp_set_next(&lost, i + 1)) {
        sw_qp_set_remove(&lost, i);
        if (user && user->lost_peer)
            user->lost_peer(i);
    }
}

/* ---- the engine ---- */

static void drain_intake(void)
{
    for (uint32_t i = 0; i < INTAKE && intake_waits(); i++) {
        uint32_t at = atomic_load(&intake.consumed);
        struct pending pending = intake.pending[at % INTAKE];
        atomic_fetch_sub(&intake.of_source[pending.source], 1);
        atomic_store(&intake.consumed, at + 1);
        take_pending(&pending);
    }
}

static uint64_t step_agent(uint64_t now_ns)
{
    const bool is_due = now_ns >= atomic_load(&due_ns);
    if (intake_waits() || sw_local_wants_step() || death_count || atomic_load(&has_lost) ||
        is_due) {
        pthread_mutex_lock(&sw_rdmacm_lock);
        drain_intake();
        sw_local_step();
        tell_deaths();
        tell_losses();
        if (is_due) {
            atomic_store(&due_ns, UINT64_MAX);
            if (user && user->tick)
                sw_agent_plan(user->tick(now_ns));
        }
        pthread_mutex_unlock(&sw_rdmacm_lock);
    }
    if (user && user->flush)
        user->flush();
    uint64_t next_ns = intake_waits() || sw_local_wants_step() ? now_ns : atomic_load(&due_ns);
    atomic_store(&planned_ns, next_ns);
    return next_ns;
}

static bool agent_wants_step(void)
{
    return intake_waits() || sw_local_wants_step() || death_count || atomic_load(&has_lost) ||
           atomic_load(&due_ns) < atomic_load(&planned_ns);
}

static void netdev_gone(struct sw_netdev *dev)
{
    pthread_mutex_lock(&sw_rdmacm_lock);
    if (user && user->removed)
        user->removed(dev);
    pthread_mutex_unlock(&sw_rdmacm_lock);
}

static void netdev_readdressed(struct sw_netdev *dev)
{
    pthread_mutex_lock(&sw_rdmacm_lock);
    if (user && user->readdressed)
        user->readdressed(dev);
    pthread_mutex_unlock(&sw_rdmacm_lock);
}

static void netdevs_changed(void)
{
    pthread_mutex_lock(&sw_rdmacm_lock);
    if (user && user->changed)
        user->changed();
    pthread_mutex_unlock(&sw_rdmacm_lock);
}

static const struct sw_engine_part part = {.step = step_agent,
                                           .wants = agent_wants_step,
                                           .netdev_gone = netdev_gone,
                                           .netdev_readdressed = netdev_readdressed,
                                           .netdevs_changed = netdevs_changed};

static const struct sw_local_user local_user = {.receive = receive_local,
                                                .packet = put_aside,
                                                .gone = gone_local,
                                                .inherit = inherit_local,
                                                .unanswered = unanswered_local};

/* Any process that has the UDP port may get what is another's. */
__attribute__((constructor)) static void init_agents(void)
{
    sw_local_init(&local_user);
    sw_engine_add(&part);
    sw_roce_on_mad(agent_take_packet);
    sw_lifeline_on_death(note_death);
    sw_death_on_loss(note_loss, hears_losses);
    sw_death_on_process(note_death);
}

static sigset_t mask_before_fork; /* under the lock */

static void agent_fork_prepare(void)
{
    sigset_t mask;
    sw_signals_hold(&mask);
    pthread_mutex_lock(&sw_rdmacm_lock);
    mask_before_fork = mask;
}

static void agent_fork_parent(void)
{
    const sigset_t mask = mask_before_fork;
    pthread_mutex_unlock(&sw_rdmacm_lock);
    sw_signals_let_go_held(&mask);
}

static void agent_fork_child(void)
{
    death_count = 0;
    lost = (struct sw_qp_set){0};
    atomic_store(&has_lost, false);
    pthread_mutex_init(&sw_rdmacm_lock, NULL);
    sw_local_fork_child();
    sw_cm_port_fork_child();
    user = NULL;
    intake.lock = (struct sw_lock){0};
    atomic_store(&intake.produced, 0);
    atomic_store(&intake.consumed, 0);
    memset(intake.of_source, 0, sizeof(intake.of_source));
    atomic_store(&due_ns, UINT64_MAX);
    atomic_store(&planned_ns, UINT64_MAX);
    sw_signals_let_go_held(&mask_before_fork);
}

/* After the NIC's handlers, so that this lock is taken before theirs. */
static void handle_forks(void)
{
    static bool handled;
    if (!handled)
        pthread_atfork(agent_fork_prepare, agent_fork_parent, agent_fork_child);
    handled = true;
}

int sw_agent_open(const struct sw_agent_user *the_user)
{
    sw_link_init();
    int rc = sw_nic_start();
    if (!rc) {
        handle_forks();
        rc = sw_local_open();
    }
    if (!rc)
        user = the_user;
    return rc;
}
