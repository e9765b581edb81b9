/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lifelines: a TCP connection between two processes that exchange packets. It tells each of them
 * when the other one dies. Two processes have one lifeline for each pair of addresses they use,
 * however many queue pairs they have between them. liveness.h is its state machine, and
 * docs/liveness.md the protocol.
 *
 * The engine owns the sockets and reads them with rx_lock held. Queue pairs only ask questions.
 * Lifelines have a lock of their own, which is taken after that of a queue pair.
 */
#ifndef SW_LINK_ROCE_LIVENESS_LIFELINE_H
#define SW_LINK_ROCE_LIVENESS_LIFELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "link/roce/port/path.h"
#include "wire/mad.h"

struct sw_arrival;
struct sw_lifeline;
struct sw_port;

/* Reads SIDEWIRE_LIVENESS. Call it once the engine runs. `port` is where the peers' packets come
 * in; it need not be open yet. */
void sw_lifeline_start(struct sw_port *port);
/* Around a fork: a connection that is made meanwhile would live on in the child, which knows
 * nothing of it, and hide the death of this process. */
void sw_lifeline_fork_prepare(void);
void sw_lifeline_fork_parent(void);
void sw_lifeline_fork_child(void);

/* ---- called for a queue pair, which is locked ---- */

/* Whether that is this process. */
bool sw_lifeline_is_self(const struct sw_roce_path *path, uint32_t slot);
/* Returns the line to the process of that slot, until sw_lifeline_leave(). NULL if there can be
 * none, for example to this process itself. */
struct sw_lifeline *sw_lifeline_join(const struct sw_roce_path *path, uint32_t slot);
/* The queue pair `qpn` is not connected to `dest_qpn` any more. `mark` is the number of the life
 * that ends (qp/life.h). */
void sw_lifeline_leave(struct sw_lifeline *line, uint32_t qpn, uint32_t dest_qpn, uint8_t mark);
/* The other process has proven that it runs Sidewire. */
void sw_lifeline_meet(struct sw_lifeline *line);

enum sw_lifeline_says {
    SW_LIFELINE_NOTHING, /* nothing is known: the timeout counts */
    SW_LIFELINE_MEETS,   /* the same, but a line is being set up */
    SW_LIFELINE_RUNS,    /* the process has run since the request was sent: the timeout counts */
    SW_LIFELINE_WAIT,    /* it has not run since then, or its last packets are still under way: the
                            timeout does not count */
    SW_LIFELINE_DEAD,
};
/* A request that has not been answered. */
struct sw_lifeline_miss {
    uint64_t since_ns;  /* when it was sent */
    uint16_t peer_port; /* the UDP port that it sends from; 0: not known */
};
/* Says what is known of a process that does not answer. */
enum sw_lifeline_says sw_lifeline_ask(struct sw_lifeline *line,
                                      const struct sw_lifeline_miss *miss);

struct sw_lifeline_flow {
    uint32_t qpn, dest_qpn;
    uint16_t source_port; /* of a request that timed out more than once; else 0 */
};
/* Sends a PING, so that more is known the next time. Call it when the request has been sent again:
 * the answer says that it has been looked at. A PING with a source port makes that process claim
 * the flow from it (sw_port_claim_flow()); the PONG does the same here for the answers. */
void sw_lifeline_ping(struct sw_lifeline *line, const struct sw_lifeline_flow *flow);

/* ---- called by receivers, with rx_lock held ---- */

/* Returns true if the MAD is one of the liveness protocol. The engine handles it later. */
bool sw_lifeline_take_mad(const struct sw_arrival *arrival, const uint8_t mad[SW_MAD_BYTES]);

/* ---- called by the engine, with rx_lock held ---- */

/* A peer that has sent a PING wants to know when this process has received all that had come by
 * then. Whether one waits for that, and the answer to all of them. */
bool sw_lifeline_owes(void);
void sw_lifeline_answer(void);
/* Whether sw_lifeline_step() has something to do. */
bool sw_lifeline_is_due(uint64_t now_ns);
/* Returns when to call it again. */
uint64_t sw_lifeline_step(uint64_t now_ns);
bool sw_lifeline_wants(void);

/* The function that the engine calls for each remote process that has died. It is called with
 * rx_lock held, so it only takes a note. Returns whether the program is told of it: then its queue
 * pairs end a little later. */
typedef bool (*sw_lifeline_death_fn)(const struct in6_addr *dest, uint32_t slot);
void sw_lifeline_on_death(sw_lifeline_death_fn tell);

#endif
