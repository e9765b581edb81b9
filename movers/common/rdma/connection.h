/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The side of an rdma_cm connection that asks: address, route, request, and its end. rdma_cm's
 * events drive it, so nobody waits in it. The owner makes the queue pair once the route is known,
 * and calls rdma_connect(). On the accepting side it starts after the request.
 */
#ifndef SW_MOVERS_CONNECTION_H
#define SW_MOVERS_CONNECTION_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/rdma/queue.h"

enum mover_event {
    MOVER_NOTHING,
    MOVER_ROUTED,    /* the device is known: make a queue pair and connect */
    MOVER_UP,        /* accepted, perhaps with private data */
    MOVER_REJECTED,  /* perhaps with private data */
    MOVER_NO_RDMA,   /* this host has no RDMA device */
    MOVER_FAULT,     /* this host can make no connection: descriptors, memory */
    MOVER_NO_DEVICE, /* none leads to the address, or no route does */
    MOVER_NO_ANSWER,
    MOVER_ENDED, /* by the other side */
    MOVER_DEVICE_GONE,
};

struct mover_connection {
    int epoll_fd; /* of the owner, who is woken by it */
    void *epoll_data;
    struct rdma_event_channel *events;
    struct rdma_cm_id *id;
    struct mover_queue queue;
    bool has_address, was_up;
    int status; /* of the newest event: a negative errno, or rdma_cm's reason of a rejection */
    uint8_t private_data[256]; /* of the newest event */
    uint32_t private_bytes;
};

enum { MOVER_CONNECTION_SAID = 400 };

/* NOTHING: it has begun; or NO_RDMA, FAULT, NO_DEVICE. Destroy it also after a failure. `source`
 * may be NULL. */
enum mover_event mover_connection_start(struct mover_connection *connection, int epoll_fd,
                                        void *epoll_data, const struct sockaddr *source,
                                        const struct sockaddr *to);
/* The other side: a request that came, with events of its own from now on. 0, or a negative errno:
 * the id is still the caller's. UP comes once it was accepted. */
int mover_connection_take(struct mover_connection *connection, int epoll_fd, void *epoll_data,
                          struct rdma_cm_id *id);
/* Opens the queue, which wakes the owner, too. Once the route is known. */
bool mover_connection_queue(struct mover_connection *connection, uint32_t entries);
/* The next event, its private data copied. NOTHING: none for now. */
enum mover_event mover_connection_next(struct mover_connection *connection);
/* Why there is no connection, or none any more, as a line for users: what NO_RDMA or one of the
 * events behind it means, when it has just come. `where` is the other side. */
void mover_connection_say(const struct mover_connection *connection, enum mover_event event,
                          const char *where, char text[MOVER_CONNECTION_SAID]);
/* Disconnects if it was up, then frees everything, the queue pair too. */
void mover_connection_destroy(struct mover_connection *connection);

#endif
