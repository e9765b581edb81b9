/* SPDX-License-Identifier: BSD-2-Clause */
/* The users: what they do when they are told something, and what they may be told at all. */
#include <stdlib.h>
#include <string.h>

#include "wire/bytes.h"
#include "world.h"

#define MS 1000000ull

uint32_t world_qpn(struct world_node *node)
{
    return 1 + node->next_qpn++ % node->world->qpns;
}

static void plan(struct world *world, struct world_user *user, enum world_act act, uint64_t max_ns)
{
    user->act = act;
    user->act_ns = world->now_ns + world_below(world, max_ns);
}

static struct world_user *new_user(struct world_node *node)
{
    struct world_user *user = calloc(1, sizeof(*user));
    if (!user)
        abort();
    sw_cm_id_init(&user->id, user);
    user->node = node->number;
    user->next = node->users;
    node->users = user;
    return user;
}

static void free_user(struct world_node *node, struct world_user *user)
{
    struct world_user **at = &node->users;
    while (*at != user)
        at = &(*at)->next;
    *at = user->next;
    free(user);
}

/* --- the active side --- */

struct world_connection *world_add(struct world *world, int from, int to, uint64_t start_ns)
{
    struct world_connection *connection = &world->connections[world->connection_count];
    *connection = (struct world_connection){.number = world->connection_count++,
                                            .from = from,
                                            .to = to,
                                            .start_ns = start_ns,
                                            .is_sidr = world_below(world, 10) == 0};
    return connection;
}

static struct sw_cm_path path_of(int from, int to)
{
    return (struct sw_cm_path){
        .local_gid = {[10] = 0xff, 0xff, 10, 0, 0, (uint8_t)from},
        .remote_gid = {[10] = 0xff, 0xff, 10, 0, 0, (uint8_t)to},
        .pkey = 0xffff,
    };
}

/* Waits of 67 ms, one of which is the time in timewait, that no MAD is late by. */
static struct sw_cm_req req_of(struct world *world, const struct world_connection *connection)
{
    struct sw_cm_req req = {.service_id = 1,
                            .local_qpn = connection->qpn,
                            .remote_cm_response_timeout = 14,
                            .local_cm_response_timeout = 14,
                            .path_mtu = 3,
                            .responder_resources = 4,
                            .max_cm_retries = (uint8_t)(7 + world_below(world, 8)),
                            .primary = {.local_ack_timeout = 14}};
    sw_be32_store(req.private_data, (uint32_t)connection->number);
    return req;
}

void world_start(struct world *world, struct world_connection *connection)
{
    struct world_node *node = &world->nodes[connection->from];
    struct world_user *user = new_user(node);
    struct sw_cm_path path = path_of(connection->from, connection->to);
    connection->started = true;
    connection->active = user;
    user->active = true;
    user->connection = connection;
    int error;
    if (connection->is_sidr) {
        struct sw_cm_sidr_req req = {.service_id = 1};
        sw_be32_store(req.private_data, (uint32_t)connection->number);
        error = sw_cm_resolve(&node->cm, &user->id, &path, &req, 100 * MS, 10, world->now_ns);
    } else {
        if (!connection->qpn)
            connection->qpn = world_qpn(node);
        struct sw_cm_req req = req_of(world, connection);
        error = sw_cm_connect(&node->cm, &user->id, &path, &req, world->now_ns);
    }
    world_note(world, "connects", connection->from, user, connection->qpn);
    if (error)
        world_fail(world, "connect is refused");
    if (!connection->polite && world_below(world, 12) == 0)
        plan(world, user, ACT_DESTROY, 200 * MS); /* or gives up before it is answered */
}

/* --- acting --- */

/* The end without the other's knowing, unless it hears it. */
static void give_up(struct world_user *user)
{
    user->connected = false;
    if (user->active)
        user->connection->active_gave_up = true;
    else
        user->connection->passive_gave_up = true;
}

static void destroy(struct world *world, struct world_user *user)
{
    struct world_connection *connection = user->connection;
    give_up(user);
    if (user->active)
        connection->active = NULL;
    else
        connection->passive = NULL;
    user->destroyed = true;
    sw_cm_id_destroy(&world->nodes[user->node].cm, &user->id, world->now_ns);
}

static void stay_or_leave(struct world *world, struct world_user *user)
{
    uint64_t dice = world_below(world, 10);
    if (user->connection->polite || dice < 4)
        return;
    plan(world, user, dice < 8 ? ACT_DISCONNECT : ACT_DESTROY, 600 * MS);
}

/* Messages of the active side over its queue pair come before its RTU now and then. */
static void use(struct world *world, const struct world_user *user)
{
    struct world_user *peer = user->connection->passive;
    if (peer && peer->act == ACT_NONE && peer->id.local_comm_id == user->id.remote_comm_id &&
        world_below(world, 3) == 0)
        plan(world, peer, ACT_ESTABLISHED, 100 * MS);
}

static int carry_out(struct world *world, struct world_user *user, enum world_act act)
{
    struct world_node *node = &world->nodes[user->node];
    struct sw_cm *cm = &node->cm;
    struct sw_cm_rep rep = {.local_qpn = user->connection->polite
                                             ? 100000u + (uint32_t)user->connection->number
                                             : world_qpn(node)};
    struct sw_cm_sidr_rep answer = {.qpn = 7};
    uint64_t now_ns = world->now_ns;
    switch (act) {
    case ACT_ACCEPT:
        return sw_cm_accept(cm, &user->id, &rep, now_ns);
    case ACT_READY:
        user->connected = true;
        stay_or_leave(world, user);
        use(world, user);
        return sw_cm_ready(cm, &user->id, NULL, 0, now_ns);
    case ACT_REJECT:
        give_up(user);
        user->over = true;
        return sw_cm_reject(cm, &user->id, SW_CM_REASON_CONSUMER, NULL, 0, NULL, 0, now_ns);
    case ACT_DISCONNECT:
        user->connected = false;
        return sw_cm_disconnect(cm, &user->id, NULL, 0, now_ns);
    case ACT_AGREE:
        return sw_cm_disconnected(cm, &user->id, NULL, 0, now_ns);
    case ACT_ANSWER:
        return sw_cm_answer(cm, &user->id, &answer, now_ns);
    case ACT_ESTABLISHED:
        return sw_cm_established(cm, &user->id, now_ns);
    case ACT_NONE:
    case ACT_DESTROY:
        break;
    }
    return 0;
}

void world_act(struct world *world, struct world_user *user)
{
    enum world_act act = user->act;
    user->act = ACT_NONE;
    world_note(world, "acts", user->node, user, act);
    if (act == ACT_DESTROY)
        return destroy(world, user);
    if (carry_out(world, user, act))
        world_fail(world, "a call is refused in the state that the user knows");
}

void world_leave(struct world *world, struct world_user *user)
{
    user->act = ACT_NONE;
    if (user->connected && world_below(world, 2)) {
        user->act = ACT_DISCONNECT;
        world_act(world, user);
    } else {
        destroy(world, user);
    }
}

void world_crash(struct world *world, struct world_node *node)
{
    world_note(world, "crashes", node->number, NULL, 0);
    sw_cm_forget(&node->cm);
    while (node->users) {
        struct world_user *user = node->users;
        user->connection->crashed = true;
        if (user->active)
            user->connection->active = NULL;
        else
            user->connection->passive = NULL;
        free_user(node, user);
    }
}

/* --- being told --- */

static void ask_user(struct world *world, struct world_user *user, bool is_req)
{
    struct sw_cm *cm = &world->nodes[user->node].cm;
    uint64_t dice = user->connection->polite ? 99 : world_below(world, 100);
    uint64_t max_ns = 100 * MS;
    if (dice >= 20 && dice < 35) {
        max_ns = 250 * MS;
        if (sw_cm_mra(cm, &user->id, 16, NULL, 0, world->now_ns)) /* 268 ms */
            world_fail(world, "an MRA is refused");
    }
    enum world_act yes = is_req ? ACT_ACCEPT : ACT_READY;
    plan(world, user, dice < 8 ? ACT_DESTROY : dice < 20 ? ACT_REJECT : yes, max_ns);
}

static void check_legal(struct world *world, const struct world_user *user,
                        const struct sw_cm_event *event)
{
    enum sw_cm_event_kind kind = event->kind;
    bool is_disconnect = kind == SW_CM_EVENT_DREP || kind == SW_CM_EVENT_DREQ;
    if (user->destroyed)
        world_fail(world, "an event after destroy");
    if (user->seen[kind])
        world_fail(world, "an event comes twice");
    if (user->over && kind != SW_CM_EVENT_EXIT)
        world_fail(world, "an event after the end");
    if (kind == SW_CM_EVENT_REP && !user->active)
        world_fail(world, "a REP for a passive side");
    if (kind == SW_CM_EVENT_RTU && user->active)
        world_fail(world, "a RTU for an active side");
    if (kind == SW_CM_EVENT_EXIT && user->id.state != SW_CM_IDLE)
        world_fail(world, "timewait is over, and the id not idle");
    if (is_disconnect && user->id.state == SW_CM_ESTABLISHED)
        world_fail(world, "told to be disconnected, and is not");
    if (kind == SW_CM_EVENT_TIMEOUT && user->connection->polite)
        world_fail(world, "a timeout on a good network");
    if (kind == SW_CM_EVENT_REP && event->message->rep.remote_comm_id != user->id.local_comm_id)
        world_fail(world, "a REP for somebody else");
}

static void react(struct world *world, struct world_user *user, const struct sw_cm_event *event)
{
    switch (event->kind) {
    case SW_CM_EVENT_REQ:
        return ask_user(world, user, true);
    case SW_CM_EVENT_REP:
        return ask_user(world, user, false);
    case SW_CM_EVENT_RTU:
        user->connected = true;
        user->act = ACT_NONE;
        return stay_or_leave(world, user);
    case SW_CM_EVENT_DREQ:
        user->connected = false;
        user->over = true;
        return plan(world, user, world_below(world, 3) ? ACT_AGREE : ACT_DESTROY, 100 * MS);
    case SW_CM_EVENT_SIDR_REQ:
        return plan(world, user, world_below(world, 4) ? ACT_ANSWER : ACT_DESTROY, 100 * MS);
    case SW_CM_EVENT_TIMEOUT:
    case SW_CM_EVENT_REJ:
        give_up(user);
        user->over = true;
        user->act = ACT_NONE;
        break;
    case SW_CM_EVENT_DREP:
    case SW_CM_EVENT_SIDR_REP:
        user->connected = false;
        user->over = true;
        user->act = ACT_NONE;
        break;
    case SW_CM_EVENT_STALE:
        user->connected = false;
        user->act = ACT_NONE;
        break;
    case SW_CM_EVENT_MRA:
    case SW_CM_EVENT_EXIT:
    case SW_CM_EVENT_COUNT:
        break;
    }
    if (event->kind != SW_CM_EVENT_MRA && user->act == ACT_NONE && world_below(world, 3) == 0) {
        if (world_below(world, 2))
            plan(world, user, ACT_DESTROY, 100 * MS);
        else
            destroy(world, user); /* from within */
    }
}

static void on_event(void *context, struct sw_cm_id *id, const struct sw_cm_event *event)
{
    struct world_node *node = context;
    struct world *world = node->world;
    struct world_user *user = id->user;
    world_note(world, sw_cm_event_name(event->kind), node->number, user, event->about);
    world->events++;
    check_legal(world, user, event);
    user->seen[event->kind] = true;
    react(world, user, event);
}

static struct sw_cm_id *on_incoming(void *context, struct sw_cm_listener *listener,
                                    const struct sw_cm_path *path,
                                    const struct sw_cm_message *message, uint16_t *reason)
{
    struct world_node *node = context;
    struct world *world = node->world;
    bool is_req = message->attribute == SW_CM_REQ;
    uint32_t number =
        sw_be32_load(is_req ? message->req.private_data : message->sidr_req.private_data);
    struct world_connection *connection = &world->connections[number];
    (void)listener;
    if (path->remote_gid[15] != connection->from || path->local_gid[15] != connection->to)
        world_fail(world, "a request from elsewhere");
    if (!connection->polite && world_below(world, 20) == 0) { /* no room just now */
        *reason = 0;
        return NULL;
    }
    /* A refusal that is lost with the request that comes next may be forgotten. */
    bool may_be_again =
        connection->crashed || (connection->passive_gave_up && world->faults.lost && is_req);
    if (connection->incoming++ && !may_be_again)
        world_fail(world, "a request reaches its user twice");
    struct world_user *user = new_user(node);
    user->connection = connection;
    connection->passive = user;
    return &user->id;
}

static void on_released(void *context, struct sw_cm_id *id)
{
    struct world_node *node = context;
    struct world_user *user = id->user;
    if (!user->destroyed)
        world_fail(node->world, "released, and not destroyed");
    free_user(node, user);
}

static void on_send(void *context, const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES])
{
    struct world_node *node = context;
    struct world *world = node->world;
    struct world_faults none = {.delay_max_ns = MS};
    const struct world_faults *faults = world->now_ns < world->heal_ns ? &world->faults : &none;
    uint64_t copies = 1;
    world->mads++;
    if (world_below(world, 1000) < faults->lost)
        copies = 0;
    else if (world_below(world, 1000) < faults->doubled)
        copies = 2;
    world->lost += copies == 0;
    world_note(world, sw_cm_attribute_name(sw_be16_load(mad + 16)), node->number, NULL, copies);
    for (; copies && world->flight_count < WORLD_FLIGHTS; copies--) {
        struct world_flight *flight = &world->flights[world->flight_count++];
        flight->arrival_ns = world->now_ns + 50000 + world_below(world, faults->delay_max_ns);
        flight->order = world->order++;
        flight->from = path->local_gid[15];
        flight->to = path->remote_gid[15];
        memcpy(flight->mad, mad, SW_MAD_BYTES);
    }
}

const struct sw_cm_ops world_ops = {
    .send = on_send, .incoming = on_incoming, .event = on_event, .released = on_released};
