/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The engine: one thread that does for the process what a NIC does by itself. It sleeps in epoll;
 * it is rung by peers (a message for a CQ whose owner sleeps, or a request that needs this
 * process), by local posters (work nobody may poll for), by control sockets and by rtnetlink.
 */
#ifndef SW_LINK_ENGINE_H
#define SW_LINK_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct sw_netdev;
struct sw_qp;

/* What a watched descriptor is; at most 16 kinds, each with one handler. */
enum sw_watch_kind {
    SW_WATCH_DOORBELL,
    SW_WATCH_NETDEV,
    SW_WATCH_LISTENER,
    SW_WATCH_NEW,
    SW_WATCH_PROVEN,
    SW_WATCH_CLIENT,
    SW_WATCH_PEER,
    SW_WATCH_HOLD,
    SW_WATCH_PORT,
    SW_WATCH_CM,
    SW_WATCH_CM_LISTENER,
    SW_WATCH_CM_CHANNEL,
    SW_WATCH_LIVENESS,
    SW_WATCH_IWARP,    /* a connection */
    SW_WATCH_IWARP_CM, /* and those that begin */
    SW_WATCH_PAIRED,   /* RoCE over TCP */
    SW_WATCH_KINDS
};

/* `what` as given to sw_engine_watch(), or the descriptor of sw_engine_watch_fd() shifted up by 4.
 */
typedef void (*sw_engine_handler)(uint64_t what);

/* What a link has the engine do beside driving its queue pairs. Each may be NULL. */
struct sw_engine_part {
    /* Its upkeep; returns when to call again (UINT64_MAX: when rung). */
    uint64_t (*step)(uint64_t now_ns);
    /* Delivers datagrams; `armed`: a program sleeps until one comes. Whether more is to be
     * delivered soon. */
    bool (*serve)(bool armed);
    /* Whether step() has something to do that it was not asked to do yet. */
    bool (*wants)(void);
    /* Whether it worked for a peer since it was last asked: the engine then mostly looks again for
     * a while before it sleeps. */
    bool (*was_busy)(void);
    /* The interface of a device does not exist any more; it has another hardware address. */
    void (*netdev_gone)(struct sw_netdev *dev);
    void (*netdev_readdressed)(struct sw_netdev *dev);
    /* Something changed of interfaces: there may be other devices than before. */
    void (*netdevs_changed)(void);
};

/* What a peer adds to the doorbell instead of 1 if something comes in a moment: the engine is awake
 * by then. */
#define SW_ENGINE_SOON (1ull << 32)

struct sw_engine {
    int doorbell; /* eventfd, also handed to peers */
    int epoll;
    pthread_t thread;
    bool running;
    atomic_bool idle;                     /* asleep for longer than a tick, or without a timeout */
    _Atomic(const struct sw_qp *) driven; /* the one whose lock it holds, or NULL */
};
extern struct sw_engine sw_engine;

/* Whether it is the engine that drives this locked QP, and not a thread of the program. */
static inline bool sw_engine_drives(const struct sw_qp *qp)
{
    return atomic_load_explicit(&sw_engine.driven, memory_order_relaxed) == qp;
}

/* Creates doorbell and epoll set; then links add themselves and their descriptors. 0 or negative
 * errno. */
int sw_engine_open(void);
void sw_engine_add(const struct sw_engine_part *part);
void sw_engine_handle(enum sw_watch_kind kind, sw_engine_handler handler);
/* Starts the thread. 0 or negative errno. */
int sw_engine_start(void);
/* Undoes sw_engine_open() where the thread does not run: it was not started, or this is a forked
 * child. */
void sw_engine_close(void);
/* Wakes the engine now. */
void sw_engine_kick(void);
/* The engine of a peer, by its doorbell: 1, or SW_ENGINE_SOON. */
void sw_engine_ring(int doorbell, uint64_t rings);
/* The engine's thread alone: whether it will look again at once if it has worked for a peer. */
bool sw_engine_goes_on(void);
/* The same: whether it has not slept since it last worked for a peer, and will not at once. */
bool sw_engine_spins(void);
/* Drives the QP with this index, if it has this link: its descriptor has shown something. */
struct sw_qp_ops;
void sw_engine_drive(uint32_t index, const struct sw_qp_ops *link);
/* Whether the calling thread is the engine. */
bool sw_engine_is_self(void);
/* Whether the program may be waiting for a peer: requests are not done, or receives are posted. */
bool sw_engine_is_awaited(void);
/* Makes sure the engine is not asleep without a timeout: it will look within a millisecond. No
 * syscall when it is about. */
void sw_engine_nudge(void);

/* `what` is aligned to 16. */
void sw_engine_watch(int fd, void *what, enum sw_watch_kind kind);
void sw_engine_rewatch(int fd, void *what, enum sw_watch_kind kind);
/* The same, and whether room to write is told of, too. */
void sw_engine_watch_room(int fd, void *what, enum sw_watch_kind kind, bool wanted);
void sw_engine_watch_fd(int fd, enum sw_watch_kind kind);
/* Tells of the descriptor once; to be asked for again each time. */
void sw_engine_watch_once(int fd, enum sw_watch_kind kind);
/* Takes that back: it tells of nothing until it is asked again. */
void sw_engine_watch_nothing(int fd, enum sw_watch_kind kind);
void sw_engine_unwatch(int fd);

#endif
