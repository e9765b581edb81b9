/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A listener (common/rdma/listener.h) that a loop serves: it hands out the requests of clients, and
 * tells when a connection is over.
 *
 *     struct mover_acceptor acceptor = {.command = "echo serve", .backlog = 64, .context = server,
 *                                       .request = take_request, .ended = end_client};
 *     mover_acceptor_open(&acceptor, &loop, address, error, sizeof(error));
 */
#ifndef SW_MOVERS_ACCEPTOR_H
#define SW_MOVERS_ACCEPTOR_H

#include <stddef.h>

#include "common/rdma/listener.h"
#include "common/serve/loop.h"
#include "common/serve/told.h"

struct mover_acceptor {
    /* The caller's. */
    const char *command; /* what runs, behind "sidewire": for what is said on standard error */
    int backlog;
    void *context;
    /* Accepts the request, or rejects it and destroys its id. An id whose context is set then is
     * told to ended(). */
    void (*request)(void *context, const struct mover_arrival *request);
    /* The connection of an id with that context is over: destroys the id. */
    void (*ended)(void *context, void *client);
    /* The acceptor's. */
    struct mover_loop *loop;
    struct mover_listener listener;
    struct mover_watch events, timer;
    struct mover_told told; /* of refusals */
};

/* Listens. 0, or a negative errno and what is wrong: then there is nothing to close, and closing
 * does nothing. What becomes of the listener later is told on standard error. */
int mover_acceptor_open(struct mover_acceptor *acceptor, struct mover_loop *loop,
                        const struct sockaddr *address, char *error, size_t error_bytes);
/* The same at an address and port as users write them. `address` NULL: all of this host. */
int mover_acceptor_open_at(struct mover_acceptor *acceptor, struct mover_loop *loop,
                           const char *address, const char *port, char *error, size_t error_bytes);
/* Rejects a request with that private data, and destroys its id. Tells why, for people, on standard
 * error: once in a second, since strangers may be refused as often as they like. */
void mover_acceptor_refuse(struct mover_acceptor *acceptor, struct rdma_cm_id *id, const char *why,
                           const void *data, size_t bytes);
/* After all ids that it has handed out are destroyed. */
void mover_acceptor_close(struct mover_acceptor *acceptor);

#endif
