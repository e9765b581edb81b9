/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RoCEv2 packets in and out of unprivileged UDP sockets (IBTA annex A17). The port knows addresses,
 * the ICRC and the slot in a destination QP number, but no queue pairs: what it receives for this
 * process it hands to one function.
 *
 * Several processes of a user share UDP port 4791 by SO_REUSEPORT, so a packet may come to the
 * wrong one: it is handed on to the process that owns the slot, which from then on asks the kernel
 * for the packets of that sender by a connected socket (share.c).
 *
 * Packets of one flow and one size leave in one call (UDP_SEGMENT), a stream of long messages
 * without the kernel's copy (connected_sender.h), and arrive in one (UDP_GRO). An unconnected
 * socket with IP_PMTUDISC_DO sends IPv4 with DF and ID 0, its segments 0, 1, 2, ..., which is what
 * makes the ICRC computable here.
 *
 * Lock order: rx_lock < a queue pair's lock < a batch's.
 */
#ifndef SW_LINK_ROCE_PORT_PORT_H
#define SW_LINK_ROCE_PORT_PORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "link/roce/port/arrival.h"
#include "link/roce/port/path.h"
#include "link/roce/port/rx_socket.h"
#include "wire/packet.h"

#define SW_PORT_SENDERS 8u       /* sources of each address family */
#define SW_PORT_CONNECTED_MAX 64 /* connected sockets */
#define SW_PORT_GUESSES 64u

/* Returns whether they are from a sender that is known: a connection's peer, or one that has a
 * key. */
typedef bool (*sw_port_deliver_fn)(void *arg, const struct sw_arrival *arrival);

enum sw_port_counter {
    SW_PORT_RX_PACKETS,
    SW_PORT_RX_BYTES,
    SW_PORT_RX_BATCHES, /* messages of the kernel: several packets each with GRO */
    SW_PORT_RX_MALFORMED,
    SW_PORT_RX_BAD_ICRC,
    SW_PORT_RX_NO_PROCESS, /* for a slot that nobody has */
    SW_PORT_RX_HANDED_ON,  /* to another process */
    SW_PORT_RX_TAKEN_OVER, /* from another process */
    SW_PORT_HAND_DROPPED,  /* the other process does not keep up */
    SW_PORT_TX_PACKETS,
    SW_PORT_TX_BYTES,
    SW_PORT_TX_BATCHES,
    SW_PORT_TX_WAITS,   /* for room in the socket */
    SW_PORT_TX_DROPPED, /* no room for long, or no way there */
    SW_PORT_TX_TOO_LONG,
    SW_PORT_COUNTERS
};

#define SW_RX_SOCKETS_MAX (3 + SW_PORT_CONNECTED_MAX)

/* The flow that has brought nearly all there is lately, for this process alone (share.c). */
struct sw_hot_flow {
    struct in6_addr source;
    uint16_t source_port;
    bool opens;               /* its socket is not read yet */
    uint32_t messages;        /* of the kernel, in a row, by the port's own sockets */
    uint64_t since_ns;        /* when the first of them came */
    uint64_t barred_until_ns; /* it was another process's, too */
};

struct sw_port {
    uint16_t udp_port;
    uint32_t slot;
    sw_port_deliver_fn deliver;
    void *arg;
    int epoll;            /* readable when a packet waits; -1: closed */
    int hands;            /* socket of share.c */
    int common_rx_fds[2]; /* of the unconnected sockets: IPv6 [0], IPv4 [1]; -1: none */
    int family_error[2];  /* why IPv6 [0] or IPv4 [1] is not served; 0: it is */
    int senders[2][SW_PORT_SENDERS];
    uint16_t source_ports[2][SW_PORT_SENDERS];
    atomic_bool no_gso;
    atomic_bool no_pairs; /* an interface took less than it had said */
    atomic_bool told_too_long;
    _Atomic uint64_t counters[SW_PORT_COUNTERS];

    struct sw_lock rx_lock; /* what follows */
    struct sw_rx_socket rx_sockets[SW_RX_SOCKETS_MAX];
    uint32_t rx_socket_count;
    uint32_t polls;
    uint32_t full_rounds; /* in a row, of receiving that found more than it took */
    uint64_t due_ns;      /* when to receive again, whatever comes; UINT64_MAX: never */
    struct sw_icrc_rewind rewind;
    struct sw_hot_flow hot;
    uint16_t next_ids[SW_PORT_GUESSES]; /* guesses: of flows' next messages' first packets */
    struct sw_port_intake *intake;
    struct sw_port_streams *streams; /* NULL: no datagrams come by TCP */
    struct sw_share *share;
};

/* Opens the sockets. -EADDRINUSE: another user or the kernel holds the port; or another negative
 * errno if no address family can be served. */
int sw_port_open(struct sw_port *port, uint16_t udp_port, uint32_t slot, sw_port_deliver_fn deliver,
                 void *arg);
/* Whether another has the port for addresses of this family, so that packets to this one do not
 * come here. */
bool sw_port_is_kept_out(const struct sw_port *port, const struct in6_addr *address);
/* Says who holds the port and what to do, once a second at most. */
void sw_port_tell_holder(uint16_t udp_port, bool is_ipv4);
/* In a forked child, too. */
void sw_port_close(struct sw_port *port);

static inline void sw_port_count(struct sw_port *port, enum sw_port_counter counter, uint64_t more)
{
    atomic_fetch_add_explicit(&port->counters[counter], more, memory_order_relaxed);
}
uint64_t sw_port_counter(const struct sw_port *port, enum sw_port_counter counter);

/* ---- receiving: with rx_lock held ---- */

/* Delivers what waits, a bounded part of it. Looks only at sockets that were busy lately unless
 * `all`. Returns the number of packets delivered. */
uint32_t sw_port_receive(struct sw_port *port, uint64_t now_ns, bool all);
/* Counts a packet whose ICRC is wrong. */
void sw_port_refuse_damaged(struct sw_port *port, const struct sw_arrival *arrival);
/* Whether the last call left nothing behind, or there is so much that it never will. */
bool sw_port_is_drained(const struct sw_port *port);
/* From here on the kernel brings nothing more; what waits is still received, and what is for other
 * processes handed on. For a process that ends, and with it the port. */
void sw_port_leave(struct sw_port *port);
/* Has the kernel bring here what comes from `source` and its `source_port` to `dest`: the process
 * that got it before does not run (docs/liveness.md). False: it cannot be had, or is had
 * already. */
bool sw_port_claim_flow(struct sw_port *port, const struct sw_arrival *arrival, uint64_t now_ns);
/* Whether it does. */
bool sw_port_has_flow(struct sw_port *port, const struct sw_arrival *arrival);
/* Closes connected sockets that have been silent for long. Returns whether there are others, for
 * which this is to be called again. */
bool sw_port_tidy(struct sw_port *port, uint64_t now_ns);

/* ---- sending ---- */

/* Readies a path whose addresses, class and sender are set. -EAFNOSUPPORT, -EADDRINUSE and the like
 * where its address family cannot be served; it says who holds the port. */
int sw_port_aim(struct sw_port *port, struct sw_roce_path *path);
/* The carrier of datagrams to some addresses by TCP (link/paired/datagrams.c). */
struct sw_port_carrier {
    /* `is_message`: of connection management, which comes twice without harm. */
    bool (*wants)(const struct sw_roce_path *path, bool is_message);
    /* For a message of connection management that leaves by UDP, perhaps again for want of an
     * answer: whether a copy is to be carried. And: one has come, perhaps by TCP. May be NULL. */
    bool (*copies)(const struct sw_roce_path *path, bool is_again);
    void (*heard)(const struct in6_addr *source, bool is_carried);
    /* A packet with its ICRC. May drop it, as a network would. With a batch's lock held. */
    void (*send)(const struct sw_roce_path *path, uint16_t source_port, const uint8_t *packet,
                 uint32_t len_bytes);
};
/* NULL: nobody does. Before the first port is opened. */
void sw_port_set_carrier(const struct sw_port_carrier *carrier);
const struct sw_port_carrier *sw_port_carrier(void);
/* The same for a path of datagrams, which may be carried by TCP. */
int sw_port_aim_datagrams(struct sw_port *port, struct sw_roce_path *path, bool is_message);
/* The UDP port that packets of a path leave from. */
static inline uint16_t sw_port_source(const struct sw_port *port, const struct sw_roce_path *path)
{
    return port->source_ports[path->is_ipv4][path->sender];
}

#endif
