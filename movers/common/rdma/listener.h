/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A place where a mover listens, for as long as the mover serves. When the address or the device
 * goes away, rdma_cm ends the listener for good (RDMA_CM_EVENT_DEVICE_REMOVAL), or it is of no use
 * (RDMA_CM_EVENT_ADDR_CHANGE). It then listens anew as soon as the address is back: it tries after
 * 100 ms, and after twice as long each time, up to 5 s.
 *
 * All listeners of one owner share its timer: a timerfd, whose owner calls mover_listener_tick()
 * for each of them when it is readable.
 */
#ifndef SW_MOVERS_LISTENER_H
#define SW_MOVERS_LISTENER_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

struct mover_listener {
    struct rdma_cm_id *id; /* NULL: lost, or never opened */
    struct rdma_event_channel *events;
    int timer_fd; /* the owner's */
    int backlog;
    struct sockaddr_storage address; /* port included */
    int why;                         /* a negative errno: what the newest try has met */
    uint64_t retry_ns, wait_ns;      /* lost: when it tries again, and how long it waited */
    uint32_t losses;
    void *owner; /* for changed() */
    /* It is lost (the id is NULL), cannot listen again for another reason than before, or listens
     * again, perhaps at another device. NULL: nobody wants to know. */
    void (*changed)(struct mover_listener *listener);
};

enum { MOVER_LISTENER_TEXT = 80, MOVER_LISTENER_SAID = 256 };

/* What has come for a listener, or for an id that it has given. It is acknowledged already, so the
 * id can be destroyed. */
struct mover_arrival {
    enum rdma_cm_event_type type;
    struct rdma_cm_id *id, *listen_id;
    struct rdma_conn_param param; /* its private data: `private_data` here, or NULL */
    uint8_t private_data[256];
};

/* Where events of listeners come from, without waiting: NULL and errno where there is no RDMA. */
struct rdma_event_channel *mover_listener_events(void);
/* A non-blocking timer for listeners: a descriptor, or -1. */
int mover_listener_timer(void);
/* True: the timer has gone off, and each listener is to be ticked. */
bool mover_listener_is_due(int timer_fd);
/* The next that has come. False: none for now. */
bool mover_listener_next(struct rdma_event_channel *events, struct mover_arrival *arrival);
/* The context of an id whose connection is over, by what has come for it. NULL: it goes on, or its
 * owner, who has cleared the context, knows. Not of a request, nor of a listener. */
void *mover_arrival_ended(const struct mover_arrival *arrival);
/* Listens. `events`, `timer_fd`, `backlog`, owner and changed() are set; where the address names no
 * port, it gets the one that was found. 0, or a negative errno: then there is nothing to close. */
int mover_listener_open(struct mover_listener *listener, const struct sockaddr *address);
/* True: it was the listener's own; the id may be gone. */
bool mover_listener_take(struct mover_listener *listener, const struct mover_arrival *arrival);
/* Tries again where that is due, and sets the timer for the next time. */
void mover_listener_tick(struct mover_listener *listener);
void mover_listener_close(struct mover_listener *listener);

/* In the host's byte order. */
uint16_t mover_listener_port(const struct mover_listener *listener);
/* "192.0.2.1 port 4420" */
void mover_listener_name(const struct mover_listener *listener, char text[MOVER_LISTENER_TEXT]);
/* What helps where it cannot listen, to be put behind the reason: "; another server...", or "". */
const char *mover_listener_help(int why);
/* What became of it, as a line for users. */
void mover_listener_say(const struct mover_listener *listener, char text[MOVER_LISTENER_SAID]);

#endif
