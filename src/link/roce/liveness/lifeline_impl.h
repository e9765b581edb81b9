/* SPDX-License-Identifier: BSD-2-Clause */
/* What lifeline.c, lifeline_mads.c, callers.c and patience.c share. */
#ifndef SW_LINK_ROCE_LIVENESS_LIFELINE_IMPL_H
#define SW_LINK_ROCE_LIVENESS_LIFELINE_IMPL_H

#include <stdatomic.h>

#include "base/lock.h"
#include "base/siphash.h"
#include "link/roce/liveness/lifeline.h"
#include "link/roce/liveness/liveness.h"
#include "wire/liveness.h"

struct sw_lifeline {
    struct sw_lifeline *next;
    struct in6_addr source, dest;
    uint32_t ifindex, slot;
    uint32_t users; /* queue pairs */
    struct sw_liveness liveness;
    int fd; /* -1: none */
    uint64_t cookie;
    bool is_connecting;
    bool asks, invites; /* MADs to send: a question, an invitation to call */
    uint32_t tells;     /* answers to send: one for each question, and no more (docs/security.md) */
    uint32_t mads_sent;
    bool owes_pong;
    bool is_told; /* connection management was told of the death */
    bool is_buried;
    uint16_t port;                /* where the other one listens */
    uint64_t nonce;               /* of the question by MAD */
    uint64_t caller, called;      /* the secrets of caller and called */
    struct sw_liveness_word ping; /* the peer's last one */
    uint64_t bury_ns;             /* when a dead one's queue pairs end; 0: it lives */
    uint64_t idle_ns;             /* since when it has no user; 0: it has one */
    struct {
        int fd; /* -1: none */
        uint64_t cookie;
        uint16_t port; /* that it is connected to */
    } probe;           /* a UDP socket: patience.c */
    uint32_t in_bytes;
    uint8_t in[SW_LIVENESS_WORD_BYTES];
};

struct sw_lifeline_mad {
    struct in6_addr own, peer;
    struct sw_liveness_mad message;
};

/* The peer's queue pair `dest_qpn` is not connected to ours, `qpn`, any more. */
struct sw_lifeline_departure {
    struct sw_lifeline *line;
    uint32_t qpn, dest_qpn;
    uint8_t mark;
};

#define SW_LIFELINE_MADS 32u /* that wait for the engine; more are dropped, and asked again */
#define SW_LIFELINE_DEPARTURES 64u

struct sw_lifelines {
    struct sw_lock lock;
    struct sw_port *port;
    bool is_off;
    bool is_forking; /* a fork has the lock */
    int epoll;       /* of all sockets below; -1: not open */
    struct sw_siphash_key key;
    struct {
        int fd; /* -1: none */
        uint64_t cookie;
        uint16_t port;
    } listeners[2]; /* IPv6 [0], IPv4 [1] */
    struct sw_lifeline *lines;
    uint32_t count;
    struct sw_lifeline_mad mads[SW_LIFELINE_MADS];
    uint32_t mad_count;
    /* Used by the engine alone: */
    struct sw_lifeline_departure departures[SW_LIFELINE_DEPARTURES];
    uint32_t departure_count;
    bool is_watched, owes;
    atomic_bool work;
    _Atomic uint64_t due_ns;
};
extern struct sw_lifelines sw_lifelines;

/* lifeline.c; with the lock held */
struct sw_lifeline *sw_lifeline_find(const struct in6_addr *source, const struct in6_addr *dest,
                                     uint32_t slot);
/* Makes `fd` the line's socket, and closes the one it had. */
void sw_lifeline_adopt(struct sw_lifeline *line, int fd, bool is_connecting);
bool sw_lifeline_say(struct sw_lifeline *line, const struct sw_liveness_word *word);
void sw_lifeline_take(struct sw_lifeline *line, enum sw_liveness_event event, uint64_t now_ns);

/* lifeline.c: wakes the engine. */
void sw_lifeline_want_engine(void);

/* lifeline_mads.c; with the lock held. Asks the other process where it listens. */
void sw_lifeline_mads_ask(struct sw_lifeline *line);
/* Handles the MADs that came since the last call. */
void sw_lifeline_mads_take(uint64_t now_ns);
/* Sends the MADs that wait. Called by the engine, without the lock. */
void sw_lifeline_mads_send(void);

/* patience.c; with the lock held. */
void sw_lifeline_stop_probing(struct sw_lifeline *line);

/* callers.c; with the lock held. Opens the listening socket, if it is closed; false: it cannot. */
bool sw_lifeline_callers_open(bool is_ipv4);
uint16_t sw_lifeline_callers_port(const struct in6_addr *own);
/* Fills in what the line's process needs to connect to us. */
void sw_lifeline_callers_describe(const struct sw_lifeline *line, struct sw_liveness_mad *out);
/* Handles an event of the epoll; false: it is not that of a caller. */
bool sw_lifeline_callers_take(void *what, uint64_t now_ns);
/* Closes callers that say nothing for too long. Returns when to call it again. */
uint64_t sw_lifeline_callers_tend(uint64_t now_ns);
void sw_lifeline_callers_fork_child(void);

#endif
