/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server that answers messages: it listens, gives each client a place by the rules of places.h,
 * and has each message answered where it lies.
 *
 *     struct mover_clients clients = {.command = "echo serve", .message_bytes = 4096,
 *                                     .context = server, .answer = answer_message};
 *     mover_clients_open(&clients, &loop, "192.0.2.1", "4440", error, sizeof(error));
 *     mover_loop_run(&loop);
 *     mover_clients_close(&clients);
 */
#ifndef SW_MOVERS_CLIENTS_H
#define SW_MOVERS_CLIENTS_H

#include <jansson.h>

#include "common/serve/acceptor.h"
#include "common/serve/client.h"
#include "common/serve/places.h"

enum { MOVER_CLIENTS_MAX = 128 };

struct mover_clients_place {
    struct mover_client client; /* its context: all clients */
    struct mover_guest guest;   /* its client: NULL where the place is free */
    uint64_t number;            /* no other client of this server has it; from 1 on */
    void *own;                  /* the caller's */
};

/* All zero to begin with, but for the caller's. It has 36 KiB: too much for the stack. */
struct mover_clients {
    /* The caller's. */
    const char *command;    /* what runs, behind "sidewire" */
    uint32_t message_bytes; /* at most */
    void *context;
    /* Writes the answer over the message, and its bytes over those of the message. False: the
     * message makes no sense, and ends the connection. A client proves itself by one that does. */
    bool (*answer)(void *context, uint8_t *message, uint32_t *bytes);
    /* All of it may be 0: a server whose clients have rights, or memory of their own, sets it. */
    uint32_t reads; /* READs that a client may have under way here */
    /* False: no client of this address is let in. */
    bool (*admits)(void *context, const struct sockaddr *peer);
    /* Says in whose domain the queue pair of a client lies. NULL: there is no room. */
    struct ibv_pd *(*came)(void *context, struct mover_clients_place *place, struct rdma_cm_id *id);
    /* Its queue pair is gone; each that came, once. */
    void (*left)(void *context, struct mover_clients_place *place);
    /* Its own. */
    struct mover_clients_place *asking; /* whose message is answered just now */
    struct mover_loop *loop;
    struct mover_acceptor acceptor;
    struct mover_places rules;
    struct mover_watch sweep;
    struct mover_clients_place places[MOVER_CLIENTS_MAX];
    uint64_t connected, refused, ended, messages; /* ended: for their silence, or for another one */
};

/* Serves by that loop from here on. 0, or a negative errno and what is wrong: then there is nothing
 * to close, and closing does nothing. `address` NULL: all of this host. */
int mover_clients_open(struct mover_clients *clients, struct mover_loop *loop, const char *address,
                       const char *port, char *error, size_t error_bytes);
/* Ends that client, if it is there and is not the one that asks: nothing of its queue pair is taken
 * any more. */
void mover_clients_end(struct mover_clients *clients, uint64_t number);
/* clients, clients_max, connected, refused, ended, messages: for a server's status. */
json_t *mover_clients_status(const struct mover_clients *clients);
void mover_clients_close(struct mover_clients *clients);

#endif
