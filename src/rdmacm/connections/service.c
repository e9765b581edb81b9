/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/connections/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "base/random.h"
#include "device/nic/netdev.h"
#include "device/nic/nic.h"
#include "device/queue/counters.h"
#include "device/queue/settle.h"
#include "rdmacm/connections/channel.h"
#include "rdmacm/connections/event.h"
#include "rdmacm/connections/farewell.h"
#include "rdmacm/connections/handover.h"
#include "rdmacm/connections/incoming.h"
#include "rdmacm/connections/listener.h"
#include "rdmacm/connections/parting.h"
#include "rdmacm/connections/resolving.h"
#include "rdmacm/connections/unheard.h"
#include "rdmacm/iwarp/iwarp.h"
#include "rdmacm/lock.h"
#include "rdmacm/mads/agent.h"
#include "rdmacm/mads/ports.h"

#define UDP_QKEY 0x01234567u           /* RDMA_UDP_QKEY */
#define RESEND_NS (200 * SW_NS_PER_MS) /* MADs get lost in queues that are full, not by the way */

/* IDs that listen to one service id; the machine knows one listener for each. */
struct sw_ucm_service {
    struct sw_cm_listener cm;
    uint64_t service_id;
    struct sw_ucm_id *ids;
    struct sw_ucm_service *next;
};

struct sw_cm sw_ucm_machine;
static struct sw_ucm_service *services;
static pid_t started_pid; /* the process that the machine is of */

void sw_ucm_service_plan(void)
{
    sw_rdmacm_assert_locked();
    sw_agent_plan(sw_cm_due_ns(&sw_ucm_machine));
}

static void machine_send(void *user, const struct sw_cm_path *path, const uint8_t *mad)
{
    (void)user;
    sw_agent_send(path, mad);
}

static struct sw_cm_id *machine_incoming(void *user, struct sw_cm_listener *listener,
                                         const struct sw_cm_path *path,
                                         const struct sw_cm_message *message, uint16_t *reason)
{
    (void)user;
    struct sw_ucm_service *service = listener->user;
    return sw_ucm_incoming(service->ids, path, message, reason);
}

static void machine_event(void *user, struct sw_cm_id *cm, const struct sw_cm_event *event)
{
    (void)user;
    sw_ucm_handover_note(cm->user);
    sw_ucm_outcome(cm->user, event);
}

static void machine_released(void *user, struct sw_cm_id *cm)
{
    (void)user;
    sw_ucm_handover_forget(cm->user);
    sw_ucm_id_free(cm->user);
}

static const struct sw_cm_ops machine_ops = {
    .send = machine_send,
    .incoming = machine_incoming,
    .event = machine_event,
    .released = machine_released,
};

static void agent_receive(const struct sw_cm_path *path, const uint8_t *mad)
{
    const uint64_t crowded = sw_ucm_machine.counts.crowded;
    sw_cm_receive(&sw_ucm_machine, path, mad, SW_MAD_BYTES, sw_clock_ns());
    if (sw_ucm_machine.counts.crowded != crowded)
        sw_agent_count_crowded(path, sw_ucm_machine.counts.crowded - crowded);
    sw_ucm_service_plan();
}

static uint64_t agent_tick(uint64_t now_ns)
{
    static uint64_t (*const ticks[])(uint64_t) = {
        sw_ucm_handover_tick,  sw_ucm_farewell_tick, sw_ucm_parting_tick,
        sw_ucm_resolving_tick, sw_ucm_unheard_tick,  sw_ucm_iwarp_tick,
    };
    uint64_t due_ns = UINT64_MAX;
    sw_cm_tick(&sw_ucm_machine, now_ns);
    for (size_t i = 0; i < sizeof(ticks) / sizeof(*ticks); i++)
        due_ns = sw_min_u64(due_ns, ticks[i](now_ns));
    return sw_min_u64(due_ns, sw_cm_due_ns(&sw_ucm_machine));
}

static void agent_gone(uint32_t slot)
{
    sw_cm_gone(&sw_ucm_machine, (uint16_t)slot, sw_clock_ns());
    sw_ucm_service_plan();
}

struct far_death {
    const uint8_t *gid;
    uint16_t slot;
};

static void lose_far(struct sw_ucm_id *id, void *arg)
{
    const struct far_death *death = arg;
    if (!id->has_cm || sw_cm_slot_of(id->cm.remote_comm_id) != death->slot ||
        memcmp(id->cm.path.remote_gid, death->gid, sizeof(id->cm.path.remote_gid)) != 0)
        return;
    sw_cm_gone_far(&sw_ucm_machine, &id->cm, death->gid, death->slot, sw_clock_ns());
    sw_ucm_farewell_finish(id); /* what it said before is here by now, and its queue pair ends */
}

static void agent_gone_far(const uint8_t gid[16], uint32_t slot)
{
    struct far_death death = {gid, (uint16_t)slot};
    sw_ucm_id_each(lose_far, &death);
    sw_ucm_service_plan();
}

static void lose_peer(struct sw_ucm_id *id, void *arg)
{
    const uint32_t index = *(const uint32_t *)arg;
    if (!id->has_cm || !id->qpn || sw_qpn_index(id->qpn) != index || sw_ucm_is_iwarp(id))
        return;
    sw_cm_gone_far(&sw_ucm_machine, &id->cm, id->cm.path.remote_gid,
                   sw_cm_slot_of(id->cm.remote_comm_id), sw_clock_ns());
    sw_ucm_farewell_finish(id);
}

static void agent_lost_peer(uint32_t qp_index)
{
    sw_ucm_id_each(lose_peer, &qp_index);
    sw_ucm_service_plan();
}

/* Ends what is between the ID and its peer. Its program hears no more of that. */
static void service_end_connection(struct sw_ucm_id *id)
{
    static const struct sw_cm_sidr_rep refusal = {.status = SW_CM_SIDR_REJECTED};
    const uint64_t now_ns = sw_clock_ns();
    struct sw_cm *cm = &sw_ucm_machine;
    if (!id->has_cm ||
        sw_ucm_is_iwarp(id)) /* each of these does nothing in the states of the others */
        return;
    sw_cm_disconnect(cm, &id->cm, NULL, 0, now_ns);
    sw_cm_disconnected(cm, &id->cm, NULL, 0, now_ns);
    sw_cm_reject(cm, &id->cm, SW_CM_REASON_CONSUMER, NULL, 0, NULL, 0, now_ns);
    sw_cm_answer(cm, &id->cm, &refusal, now_ns);
}

/* As the kernel does, which then has no ID behind the program's any more: docs/cm.md. An ID may be
 * bound to the next interface of that name before the end of the one before it is told. */
static void lose_device(struct sw_ucm_id *id, void *dev)
{
    if (id->dev != dev || id->state == SW_UCM_DEVICE_REMOVAL ||
        sw_netdev_is_interface(dev, id->ifindex))
        return;
    id->state = SW_UCM_DEVICE_REMOVAL;
    sw_ucm_resolving_forget(id);
    sw_ucm_unheard_forget(id);
    sw_ucm_service_leave(id);
    sw_ucm_iwarp_forget(id);
    sw_cm_port_release(id->port);
    id->port = NULL;
    service_end_connection(id);
    sw_ucm_farewell_finish(id);
    sw_ucm_event_tell(id, SW_UCM_DEVICE_REMOVAL_EVENT, 0);
}

static void agent_removed(struct sw_netdev *dev)
{
    sw_ucm_id_each(lose_device, dev);
    sw_ucm_service_plan();
}

/* The program may make of it what it likes: the ID and its connection go on. */
static void tell_address(struct sw_ucm_id *id, void *dev)
{
    if (id->dev == dev && id->state != SW_UCM_DEVICE_REMOVAL)
        sw_ucm_event_tell(id, SW_UCM_ADDR_CHANGE_EVENT, 0);
}

static void agent_readdressed(struct sw_netdev *dev)
{
    sw_ucm_id_each(tell_address, dev);
}

/* Listeners at any address have what comes, too. */
static void agent_changed(void)
{
    sw_ucm_id_each(sw_ucm_listener_follow, NULL);
}

static const struct sw_agent_user agent_user = {
    .receive = agent_receive,
    .gone = agent_gone,
    .gone_far = agent_gone_far,
    .lost_peer = agent_lost_peer,
    .inherit = sw_ucm_handover_disconnect,
    .removed = agent_removed,
    .readdressed = agent_readdressed,
    .changed = agent_changed,
    .tick = agent_tick,
    .flush = sw_ucm_channel_flush,
};

/* The GUID of the node: the same in all its processes. */
static uint64_t ca_guid(void)
{
    struct sw_netdev_info info = {0};
    if (sw_netdev_count())
        sw_netdev_read(sw_netdev_get(0), &info);
    return info.guid;
}

bool sw_ucm_service_is_started(void)
{
    return started_pid == getpid();
}

int sw_ucm_service_start(void)
{
    sw_rdmacm_assert_locked();
    if (started_pid == getpid())
        return 0;
    int rc = sw_netdev_count() ? 0 : sw_netdev_refresh(NULL, NULL);
    if (!rc)
        rc = sw_agent_open(&agent_user);
    if (rc)
        return rc;
    struct sw_cm_config config = {
        .ca_guid = ca_guid(), .slot = (uint16_t)sw_agent_slot(), .resend_ns = RESEND_NS};
    sw_ucm_iwarp_start();
    sw_random_fill(&config.key, sizeof(config.key));
    sw_cm_init(&sw_ucm_machine, &config, &machine_ops, NULL);
    started_pid = getpid();
    return 0;
}

void sw_ucm_service_fork_child(void)
{
    while (services) {
        struct sw_ucm_service *service = services;
        services = service->next;
        free(service);
    }
    sw_ucm_iwarp_fork_child();
    sw_ucm_handover_fork_child();
    sw_ucm_farewell_fork_child();
    sw_ucm_resolving_fork_child();
    sw_ucm_unheard_fork_child();
    if (started_pid)
        sw_cm_forget(&sw_ucm_machine);
}

static int find_service(uint64_t service_id, struct sw_ucm_service **out)
{
    struct sw_ucm_service *service = services;
    while (service && service->service_id != service_id)
        service = service->next;
    if (!service) {
        service = calloc(1, sizeof(*service));
        if (!service)
            return -ENOMEM;
        int rc = sw_cm_listen(&sw_ucm_machine, &service->cm, service_id, UINT64_MAX, service);
        if (rc) {
            free(service);
            return rc;
        }
        service->service_id = service_id;
        service->next = services;
        services = service;
    }
    *out = service;
    return 0;
}

int sw_ucm_service_join(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_service *service;
    int rc = find_service(sw_address_service_id(&id->src, id->port_space), &service);
    if (rc)
        return rc;
    id->service = service;
    id->service_next = service->ids;
    service->ids = id;
    return 0;
}

void sw_ucm_service_leave(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_service *service = id->service;
    if (!service)
        return;
    struct sw_ucm_id **at = &service->ids;
    while (*at != id)
        at = &(*at)->service_next;
    *at = id->service_next;
    id->service = NULL;
    if (service->ids)
        return;
    sw_cm_unlisten(&sw_ucm_machine, &service->cm);
    struct sw_ucm_service **place = &services;
    while (*place != service)
        place = &(*place)->next;
    *place = service->next;
    free(service);
}

void sw_ucm_service_forget(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    if (id->cm.state == SW_CM_ESTABLISHED)
        sw_qp_settle(id->qpn); /* its ACKs leave before the DREQ */
    sw_cm_id_destroy(&sw_ucm_machine, &id->cm, sw_clock_ns());
    sw_ucm_service_plan();
}

int sw_ucm_service_set_qkey(struct sw_ucm_id *id, uint32_t qkey)
{
    sw_rdmacm_assert_locked();
    if (id->qkey)
        return qkey && qkey != id->qkey ? -EINVAL : 0;
    if (qkey)
        id->qkey = qkey;
    else if (id->port_space == RDMA_PS_UDP || id->port_space == RDMA_PS_IB)
        id->qkey = UDP_QKEY;
    else
        return -EINVAL; /* an IPoIB group tells it, which RoCE has none of */
    return 0;
}

uint8_t sw_ucm_service_ack_timeout(uint8_t ack_delay, uint8_t packet_life_time)
{
    /* Twice the way and the delay at its end, as powers of two: their sum rounded up. */
    int way = packet_life_time + 1;
    int most = way > ack_delay ? way : ack_delay;
    int least = way > ack_delay ? ack_delay : way;
    int timeout = most + (least >= most - 1);
    return (uint8_t)(timeout > 31 ? 31 : timeout);
}
