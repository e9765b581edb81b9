/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connection for commands, which have nothing to do but wait for it:
 *
 *     struct mover_dial dial = {.context = bench, .routed = open_queue};
 *     if (!mover_dial(&dial, "192.0.2.1", "4440", error))
 *         return mover_fail("%s", error);
 *     ...                                  by dial.connection
 *     mover_hang_up(&dial);
 *
 * A server that has no place for now (busy.h) is asked again, until the time is over.
 */
#ifndef SW_MOVERS_DIAL_H
#define SW_MOVERS_DIAL_H

#include "common/rdma/connection.h"

struct mover_dial {
    /* The caller's. The device is known: makes the queue and the queue pair. False and errno: there
     * is no room for them. */
    bool (*routed)(void *context, struct mover_connection *connection);
    /* The queue pair is destroyed: frees what else routed() has made of the device. May be NULL. */
    void (*closed)(void *context);
    void *context;
    struct rdma_conn_param param; /* of the request */
    int timeout_ms;               /* of the whole; 0: 10 s */
    /* The dial's. */
    struct mover_connection connection;
    int epoll_fd;
    bool is_absent; /* nobody serves there, or not yet */
};

/* True: the connection is up. False, and why: there is nothing to hang up. The texts are as users
 * write them. */
bool mover_dial(struct mover_dial *dial, const char *address, const char *port,
                char error[MOVER_CONNECTION_SAID]);
/* The next completion. 1, 0 if none came in time, or negative: the connection is over. Sleeps while
 * there is none. */
int mover_dial_poll(struct mover_dial *dial, struct ibv_wc *wc, int timeout_ms);
/* Frees everything, the queue pair too. */
void mover_hang_up(struct mover_dial *dial);

#endif
