/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The engine: one thread that does for the process what a NIC does by itself. It sleeps in epoll;
 * it is rung by peers (a message for a CQ whose owner sleeps, or a request that needs this
 * process), by local posters (work nobody may poll for), by control sockets and by rtnetlink.
 */
#ifndef SW_LINK_DIRECT_ENGINE_H
#define SW_LINK_DIRECT_ENGINE_H

#include <stdint.h>

enum sw_watch_kind {
    SW_WATCH_DOORBELL,
    SW_WATCH_LISTENER,
    SW_WATCH_NETDEV,
    SW_WATCH_NEW,
    SW_WATCH_CLIENT,
    SW_WATCH_PEER
};

/* Creates doorbell, epoll set and thread; the listener must exist. 0 or negative errno. */
int sw_engine_start(void);
/* Wakes the engine now. */
void sw_engine_kick(void);
/* Makes sure the engine is not asleep without a timeout: it will look within a millisecond. No
 * syscall when it is about. */
void sw_engine_nudge(void);

void sw_engine_watch(int fd, void *what, enum sw_watch_kind kind);
void sw_engine_rewatch(int fd, void *what, enum sw_watch_kind kind);
void sw_engine_watch_fd(int fd); /* a client that has not said who it is */
void sw_engine_unwatch(int fd);

#endif
