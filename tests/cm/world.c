/* SPDX-License-Identifier: BSD-2-Clause */
/* The course of time, the network, and what must hold at its end. */
#include "world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mix.h"

#define MS 1000000ull
enum { STEPS_MAX = 400000 };

uint64_t world_random(struct world *world)
{
    world->random += SW_MIX_STEP;
    return sw_mix(world->random);
}

uint64_t world_below(struct world *world, uint64_t bound)
{
    return bound ? world_random(world) % bound : 0;
}

void world_fail(struct world *world, const char *fault)
{
    if (!world->fault)
        world->fault = fault;
    if (world->trace)
        printf("%12.3f ms FAULT %s\n", (double)world->now_ns / 1e6, fault);
}

void world_note(struct world *world, const char *what, int node, const struct world_user *user,
                uint64_t number)
{
    uint64_t whose = user ? (uint64_t)user->connection->number * 2 + user->active : 9999;
    world->hash = sw_mix(world->hash ^ world->now_ns ^ (uint64_t)node << 56 ^ whose << 40 ^
                         (uint64_t)what[0] << 32 ^ number);
    if (!world->trace)
        return;
    printf("%12.3f ms node %d ", (double)world->now_ns / 1e6, node);
    if (user)
        printf("connection %d %s (%s): ", user->connection->number,
               user->active ? "active" : "passive", sw_cm_state_name(user->id.state));
    printf("%s %" PRIu64 "\n", what, number);
}

static void begin(struct world *world, uint64_t seed, bool trace)
{
    *world = (struct world){.seed = seed, .trace = trace, .now_ns = 1000 * MS};
    world->random = sw_mix(seed);
    static const uint32_t losses[] = {0, 0, 20, 100, 300};
    world->faults = (struct world_faults){
        .lost = losses[world_below(world, 5)],
        .doubled = (uint32_t)world_below(world, 2) * 200,
        .delay_max_ns = (const uint64_t[]){MS / 10, 5 * MS, 30 * MS}[world_below(world, 3)]};
    world->heal_ns = world->now_ns + 3000 * MS;
    world->crash_ns =
        world_below(world, 4) ? UINT64_MAX : world->now_ns + world_below(world, 2000 * MS);
    world->qpns = world_below(world, 3) ? 1000000 : 12; /* seldom few: they come again too soon */
    uint64_t resend_ns = world_below(world, 2) * 10 * MS;
    for (int i = 0; i < WORLD_NODES; i++) {
        struct world_node *node = &world->nodes[i];
        struct sw_cm_config config = {.ca_guid = 0x1000 + (uint64_t)i,
                                      .slot = (uint16_t)(i + 1),
                                      .key = {{world_random(world), 1}},
                                      .resend_ns = resend_ns};
        node->world = world;
        node->number = i;
        sw_cm_init(&node->cm, &config, &world_ops, node);
        if (sw_cm_listen(&node->cm, &node->listener, 1, UINT64_MAX, node))
            world_fail(world, "listen is refused");
    }
    for (uint64_t i = 12 + world_below(world, 10); i; i--)
        world_add(world, (int)world_below(world, WORLD_NODES), (int)world_below(world, WORLD_NODES),
                  world->now_ns + world_below(world, 2500 * MS));
}

/* --- one step: whatever is next --- */

static void crash(struct world *world)
{
    struct world_node *node = &world->nodes[world_below(world, WORLD_NODES)];
    struct sw_cm_config config = node->cm.config;
    world->crash_ns = UINT64_MAX;
    for (int i = 0; i < world->connection_count; i++) {
        struct world_connection *connection = &world->connections[i];
        if (connection->started &&
            (connection->from == node->number || connection->to == node->number))
            connection->crashed = true;
    }
    world_crash(world, node);
    config.key.words[0] = world_random(world);
    node->next_qpn = 0; /* numbers begin again */
    sw_cm_init(&node->cm, &config, &world_ops, node);
    if (sw_cm_listen(&node->cm, &node->listener, 1, UINT64_MAX, node))
        world_fail(world, "listen is refused");
}

static void arrive(struct world *world, int number)
{
    struct world_flight flight = world->flights[number];
    struct sw_cm_path path = {.local_gid = {[10] = 0xff, 0xff, 10, 0, 0, (uint8_t)flight.to},
                              .remote_gid = {[10] = 0xff, 0xff, 10, 0, 0, (uint8_t)flight.from},
                              .pkey = 0xffff};
    world->flights[number] = world->flights[--world->flight_count];
    if (sw_cm_receive(&world->nodes[flight.to].cm, &path, flight.mad, SW_MAD_BYTES, world->now_ns))
        world_fail(world, "a MAD is no message");
}

struct next {
    uint64_t at_ns;
    int flight, connection, node;
    struct world_user *user;
    bool crash;
};

static bool earlier(struct next *next, uint64_t at_ns)
{
    if (at_ns >= next->at_ns)
        return false;
    *next = (struct next){.at_ns = at_ns, .flight = -1, .connection = -1, .node = -1};
    return true;
}

static struct next find_next(struct world *world)
{
    struct next next = {.at_ns = UINT64_MAX, .flight = -1, .connection = -1, .node = -1};
    if (earlier(&next, world->crash_ns))
        next.crash = true;
    for (int i = 0; i < world->connection_count; i++)
        if (!world->connections[i].started && earlier(&next, world->connections[i].start_ns))
            next.connection = i;
    for (int i = 0; i < WORLD_NODES; i++) {
        if (earlier(&next, sw_cm_due_ns(&world->nodes[i].cm)))
            next.node = i;
        for (struct world_user *user = world->nodes[i].users; user; user = user->next)
            if (user->act != ACT_NONE && !user->destroyed && earlier(&next, user->act_ns))
                next.user = user;
    }
    for (int i = 0; i < world->flight_count; i++) {
        const struct world_flight *flight = &world->flights[i];
        bool first = flight->arrival_ns == next.at_ns && next.flight >= 0 &&
                     flight->order < world->flights[next.flight].order;
        if (first || earlier(&next, flight->arrival_ns))
            next.flight = i;
    }
    return next;
}

static bool step(struct world *world)
{
    struct next next = find_next(world);
    if (next.at_ns == UINT64_MAX)
        return false;
    if (next.at_ns > world->now_ns)
        world->now_ns = next.at_ns;
    if (next.crash)
        crash(world);
    else if (next.flight >= 0)
        arrive(world, next.flight);
    else if (next.connection >= 0)
        world_start(world, &world->connections[next.connection]);
    else if (next.user)
        world_act(world, next.user);
    else
        sw_cm_tick(&world->nodes[next.node].cm, world->now_ns);
    return true;
}

static void rest(struct world *world)
{
    for (int steps = 0; step(world) && !world->fault; steps++)
        if (steps > STEPS_MAX)
            return world_fail(world, "it never comes to rest");
}

/* --- what must hold --- */

static bool is_there(const struct world_user *user)
{
    return user && user->id.state == SW_CM_ESTABLISHED;
}

static void check_agreement(struct world *world, struct world_connection *connection)
{
    const struct world_user *active = connection->active, *passive = connection->passive;
    bool a = is_there(active), p = is_there(passive);
    if ((active && a != active->connected) || (passive && p != passive->connected))
        return world_fail(world, "a user is not told of the state of its connection");
    if (a && p) {
        world->both++;
        if (active->id.remote_comm_id != passive->id.local_comm_id ||
            passive->id.remote_comm_id != active->id.local_comm_id ||
            active->id.remote_qpn != passive->id.local_qpn ||
            passive->id.remote_qpn != active->id.local_qpn)
            world_fail(world, "connected to somebody else");
    } else if (!a && !p) {
        world->neither++;
    } else {
        world->half++;
        bool gave_up = a ? connection->passive_gave_up : connection->active_gave_up;
        if (!connection->crashed && !(gave_up && world->faults.lost))
            world_fail(world, "one side is connected, the other is not");
    }
}

/* Nothing waits for anything: what is left is idle, connected, or over. */
static void check_rest(struct world *world)
{
    for (int i = 0; i < WORLD_NODES; i++)
        for (struct world_user *user = world->nodes[i].users; user; user = user->next) {
            enum sw_cm_state state = user->id.state;
            if (user->destroyed)
                world_fail(world, "a destroyed id is not released");
            if (state != SW_CM_IDLE && state != SW_CM_ESTABLISHED)
                world_fail(world, "an id neither ends nor connects");
        }
    for (int i = 0; i < world->connection_count; i++)
        check_agreement(world, &world->connections[i]);
}

/* Each to each, on a network that has become good. */
static void connect_all(struct world *world)
{
    int first = world->connection_count;
    for (int from = 0; from < WORLD_NODES; from++)
        for (int to = 0; to < WORLD_NODES; to++) {
            struct world_connection *connection = world_add(world, from, to, world->now_ns);
            connection->is_sidr = false;
            connection->polite = true;
            connection->qpn = 200000u + (uint32_t)connection->number;
        }
    rest(world);
    for (int i = first; i < world->connection_count && !world->fault; i++)
        if (!is_there(world->connections[i].active) || !is_there(world->connections[i].passive))
            world_fail(world, "a connection does not come to be on a good network");
}

static void leave_all(struct world *world)
{
    for (int i = 0; i < WORLD_NODES; i++)
        for (struct world_user *user = world->nodes[i].users, *next; user; user = next) {
            next = user->next;
            if (!user->destroyed)
                world_leave(world, user);
        }
    rest(world);
}

static void check_empty(struct world *world)
{
    for (int i = 0; i < WORLD_NODES; i++) {
        const struct sw_cm *cm = &world->nodes[i].cm;
        if (world->nodes[i].users)
            world_fail(world, "an id is never released");
        if (cm->id_count || cm->timers.first)
            world_fail(world, "an id or a timer is left");
        for (int bucket = 0; bucket < SW_CM_BUCKETS; bucket++)
            if (cm->by_local[bucket] || cm->by_remote[bucket] || cm->by_remote_qpn[bucket])
                world_fail(world, "something is left in a table");
    }
}

static void clean_up(struct world *world)
{
    for (int i = 0; i < WORLD_NODES; i++)
        world_crash(world, &world->nodes[i]);
}

const char *world_run(struct world *world, uint64_t seed, bool trace)
{
    begin(world, seed, trace);
    rest(world);
    if (world->now_ns < world->heal_ns)
        world->now_ns = world->heal_ns;
    if (!world->fault)
        check_rest(world);
    if (!world->fault)
        connect_all(world);
    for (int round = 0; round < 2 && !world->fault; round++)
        leave_all(world); /* some disconnect first, and destroy then */
    if (!world->fault)
        check_empty(world);
    clean_up(world);
    return world->fault;
}
