/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One connection between two processes of a host, over which their MADs pass as messages. Messages
 * wait in memory until the connection is proven (link/direct/process/proof.h) and its socket has
 * room.
 *
 * sw_rdmacm_lock held in all calls but sw_local_wants_step().
 */
#ifndef SW_RDMACM_MADS_LOCAL_CONNECTION_H
#define SW_RDMACM_MADS_LOCAL_CONNECTION_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "link/direct/process/proof.h"
#include "rdmacm/mads/local_message.h"

#define SW_LOCAL_ASKED_MAX 256u /* requests that a connection remembers */

struct sw_local_queued; /* a message that waits */

struct sw_local_asked { /* a request whose answer has not been looked for since */
    uint32_t local_comm_id;
    uint8_t peer_gid[16];
};

struct sw_local_connection {
    struct sw_local_connection *next;
    int fd;
    uint32_t slot; /* of the process at the other end; 0: not told yet */
    pid_t pid;
    bool is_dead; /* to be closed by sw_local_step() */

    /* The proof that both may look into the other; until it is judged messages wait. */
    struct sw_proof proof;
    bool is_judged;
    bool is_strange; /* they may not: packets alone pass, as between two hosts */
    bool is_counted; /* among the connections that have proven nothing (local_table.h) */

    /* What it is for. */
    bool is_peer;     /* MADs for the process take it, or would */
    bool is_reserved; /* not for other MADs: it came to a service of ours, or serves a handover */
    int listener;     /* of the service that it came to; -1: of none, or of one that is closed */

    /* To a service of the other process (local_service.h), and what was asked there. */
    bool is_to_service;
    uint64_t service_id;
    struct in6_addr address;
    uint32_t asked_count;
    struct sw_local_asked asked[SW_LOCAL_ASKED_MAX];

    /* For a handover (local_successor.h). */
    bool hands_over;         /* the other process gets our descriptor as soon as it is proven */
    uint32_t successor_slot; /* whose the connection should be, for that */
    int inherited_fd;        /* what the other process handed over to us; -1: nothing */

    uint32_t queued_count;
    struct sw_local_queued *first, **last;
};

/* NULL, or a connection of a connected socket that takes `fd`, about to be proven. */
struct sw_local_connection *sw_local_connection_create(int fd);
/* Closes and frees it. */
void sw_local_connection_free(struct sw_local_connection *connection);

/* Sends a message, now or later. -EAGAIN: lost, as too many wait; -ECONNRESET: it ends. */
int sw_local_connection_send(struct sw_local_connection *connection,
                             const struct sw_local_message *message);
/* Sends what waits, as far as there is room. */
void sw_local_connection_flush(struct sw_local_connection *connection);
/* A request went over it: should the process end, the request is known to have no answer. */
void sw_local_connection_note_asked(struct sw_local_connection *connection,
                                    const struct sw_local_asked *asked);

/* It is to be closed by the next step of the engine, and a step is wanted. */
void sw_local_connection_end(struct sw_local_connection *connection);
void sw_local_want_step(void);
bool sw_local_wants_step(void); /* any thread */
bool sw_local_take_wish(void);  /* whether a step was wanted; it is not any more */

#endif
