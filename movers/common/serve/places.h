/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rules of a server's places: who may have one, and for how long. A client has proved itself when
 * it has asked something that is valid. Nobody takes places from those that have. The oldest of
 * those that have not is let go first: of the origin that has most of them, or of the newcomer's if
 * that has its share already. It has had time to ask, since clients that start together are as
 * honest as one. But an origin that has many keeps out none that has few. The share is no more than
 * three times what is free, to clients that may only read three times what is free to these.
 *
 * The server keeps its clients as it likes: at() describes the one that has a place.
 */
#ifndef SW_MOVERS_PLACES_H
#define SW_MOVERS_PLACES_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

enum { MOVER_PLACES_UNPROVED_MAX = 256 };

struct mover_guest {
    void *client;           /* NULL: the place is free */
    struct in6_addr origin; /* by which places are counted: origin.h */
    uint64_t since_ns;      /* when it came */
    uint64_t answered_ns;   /* when the answer went that it has not taken yet; 0: there is none */
    uint64_t probed_ns;     /* when it was probed, or came */
    bool is_proved, is_reader;
};

struct mover_places {
    uint32_t count;
    uint32_t readers_max;     /* clients that may only read: they leave some to the others */
    uint32_t unproved_max;    /* that have not asked anything yet: 256 at most */
    uint32_t of_one;          /* places of one origin; half of them if it may only read */
    uint32_t unproved_of_one; /* of these without a request yet */
    uint64_t young_ns;        /* so long an unproved one makes room only for who has fewer */
    uint64_t prove_ns;        /* until the first request */
    uint64_t answer_ns;       /* until an answer is taken */
    uint64_t probe_ns;        /* how often it is looked whether a client is there */
    void *context;
    struct mover_guest (*at)(void *context, uint32_t place);
    void (*look)(void *context, void *client); /* takes what it has asked; may end it */
    void (*let_go)(void *context, void *client);
    void (*probe)(void *context, void *client); /* asks its host for a sign of life */
};

/* Lets one go that has proved nothing for a while where that makes room. False: there is no place
 * for a client of this origin, yet or at all. */
bool mover_places_make_room(const struct mover_places *places, const struct in6_addr *origin,
                            bool is_reader, uint64_t now_ns);
/* Lets those go that are silent for too long. Returns when to call it again; 0: once there is a
 * client, since all places are free. */
uint64_t mover_places_sweep(const struct mover_places *places, uint64_t now_ns);

#endif
