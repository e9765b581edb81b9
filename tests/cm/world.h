/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nodes with the machine of cm/ each, in virtual time, on a network that loses, doubles and
 * reorders, and users who connect, accept, reject, disconnect, walk away and crash. All of it
 * follows from a seed.
 *
 * What must hold, as seen by the users: no event comes twice or after the end; a request reaches a
 * user once; when the faults are over everything comes to rest, and both ends of each connection
 * agree whether there is one, but where one of them has said that it gave up; then new connections
 * work; and when all users have left, nothing is left in the machines.
 */
#ifndef SW_TESTS_CM_WORLD_H
#define SW_TESTS_CM_WORLD_H

#include "cm/cm.h"

enum { WORLD_NODES = 3, WORLD_CONNECTIONS = 40, WORLD_FLIGHTS = 4096 };

struct world_faults { /* of 1000 MADs */
    uint32_t lost, doubled;
    uint64_t delay_max_ns;
};

/* What a user is about to do with an id. */
enum world_act {
    ACT_NONE,
    ACT_ACCEPT,
    ACT_READY,
    ACT_REJECT,
    ACT_DISCONNECT,
    ACT_AGREE, /* to the peer's DREQ */
    ACT_ANSWER,
    ACT_DESTROY,
    ACT_ESTABLISHED,
};

/* An id and its user. Lives until it is released. */
struct world_user {
    struct sw_cm_id id;
    struct world_user *next;
    struct world_connection *connection;
    int node;
    bool active, destroyed, connected, over;
    bool seen[SW_CM_EVENT_COUNT];
    uint64_t act_ns;
    enum world_act act;
};

/* An attempt of one node to connect to another, or to resolve a service of its. */
struct world_connection {
    int number, from, to;
    uint64_t start_ns;
    uint32_t qpn;                  /* of the active side */
    bool is_sidr, started, polite; /* polite: its users accept, and wait */
    int incoming;
    struct world_user *active, *passive; /* NULL: destroyed */
    /* Whether an end was ever there, and whether it left (or was made to) without the other. */
    bool active_gave_up, passive_gave_up, crashed;
};

struct world_flight {
    uint64_t arrival_ns, order;
    int from, to;
    uint8_t mad[SW_MAD_BYTES];
};

struct world_node {
    struct world *world;
    int number, lives;
    struct sw_cm cm;
    struct sw_cm_listener listener;
    struct world_user *users;
    uint32_t next_qpn;
};

struct world {
    uint64_t seed, random, now_ns, order, hash;
    bool trace;
    const char *fault; /* what went wrong first; NULL: nothing */
    struct world_faults faults;
    uint64_t heal_ns, crash_ns;
    uint32_t qpns; /* so many are used in turn */
    struct world_node nodes[WORLD_NODES];
    struct world_connection connections[WORLD_CONNECTIONS];
    int connection_count;
    struct world_flight flights[WORLD_FLIGHTS];
    int flight_count;
    /* For the report. */
    uint64_t mads, lost, both, neither, half, events;
};

/* Runs the world of a seed. NULL: all is well; else what went wrong. */
const char *world_run(struct world *world, uint64_t seed, bool trace);

/* --- between world.c and users.c --- */

uint64_t world_random(struct world *world);
uint64_t world_below(struct world *world, uint64_t bound);
void world_fail(struct world *world, const char *fault);
void world_note(struct world *world, const char *what, int node, const struct world_user *user,
                uint64_t number);
uint32_t world_qpn(struct world_node *node);

extern const struct sw_cm_ops world_ops;
struct world_connection *world_add(struct world *world, int from, int to, uint64_t start_ns);
void world_start(struct world *world, struct world_connection *connection);
void world_act(struct world *world, struct world_user *user);
void world_leave(struct world *world, struct world_user *user);
void world_crash(struct world *world, struct world_node *node);

#endif
