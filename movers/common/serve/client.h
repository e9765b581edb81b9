/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client that a server's loop serves: it asks by messages, and is answered by messages. Each is
 * answered from where it lies, and that place takes the next one then.
 *
 *     client->answer = answer_client;
 *     client->ended = end_client;
 *     if (mover_client_open(client, &loop, id, id->pd, 2, 4096) && !rdma_accept(id, &param))
 *         return;
 *     mover_client_close(client);
 */
#ifndef SW_MOVERS_CLIENT_H
#define SW_MOVERS_CLIENT_H

#include "common/rdma/messages.h"
#include "common/serve/loop.h"

struct mover_client {
    /* The caller's. */
    void *context;
    /* Writes the answer over the message, and its bytes over those of the message. False: there is
     * no answer, and the connection is over. */
    bool (*answer)(struct mover_client *client, uint8_t *message, uint32_t *bytes);
    void (*ended)(struct mover_client *client); /* its connection is over: closes it */
    bool is_over; /* nothing more is taken: it ends once its answer has gone */
    /* Its own. */
    struct mover_loop *loop;
    struct rdma_cm_id *id; /* NULL: not open */
    struct mover_queue queue;
    struct mover_messages messages;
    struct mover_watch watch;
    enum ibv_wc_status status; /* of what came last: why it has ended */
    uint32_t answers;          /* that it has not taken yet */
    uint64_t answered_ns;      /* when the newest of these went, or it took one; 0: there is none */
    bool is_probed;
};

/* The queue pair of its id, with so many places for messages of so many bytes at most. False and
 * errno: there is no room. Close it also after a failure. */
bool mover_client_open(struct mover_client *client, struct mover_loop *loop, struct rdma_cm_id *id,
                       struct ibv_pd *pd, uint32_t count, uint32_t bytes);
/* Takes what it has asked. It may have ended then. */
void mover_client_ready(struct mover_client *client);
/* Asks its device for a sign of life, a WRITE of no bytes. A client whose host is gone ends by the
 * error. */
void mover_client_probe(struct mover_client *client);
/* Once it was disconnected. False: its process runs on the same host, was stopped amid a store, and
 * may still do the rest, since a software device has it store by itself. It is to be asked again
 * later: until the process goes on or ends, what it could write to has no other owner. */
bool mover_client_is_quiet(struct mover_client *client);
/* Frees all but the id. */
void mover_client_close(struct mover_client *client);
/* Disconnects it, and frees all. */
void mover_client_end(struct mover_client *client);

#endif
