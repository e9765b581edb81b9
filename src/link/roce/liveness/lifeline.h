/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The TCP connections by which processes that talk over packets know of each other's lives
 * (liveness.h): one for each two processes, by as many addresses as they use, whatever the number
 * of queue pairs between them. docs/liveness.md.
 *
 * The engine has the sockets, and looks at them with rx_lock held; queue pairs only ask. One lock
 * of its own, below that of a queue pair.
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

/* Reads SIDEWIRE_LIVENESS; the engine is there. `port`: by which the peers' packets come; it need
 * not be open yet. */
void sw_lifeline_start(struct sw_port *port);
void sw_lifeline_fork_child(void);

/* ---- of a queue pair, which is locked ---- */

/* The line to the process of that slot; NULL: there is none, as to oneself. Paired with leave(). */
struct sw_lifeline *sw_lifeline_join(const struct sw_roce_path *path, uint32_t slot);
/* The queue pair `qpn` is connected to `dest_qpn` no longer; `mark`: of the life that ends. */
void sw_lifeline_leave(struct sw_lifeline *line, uint32_t qpn, uint32_t dest_qpn, uint8_t mark);
/* The other process has shown that it is one of ours. */
void sw_lifeline_meet(struct sw_lifeline *line);

enum sw_lifeline_says {
    SW_LIFELINE_NOTHING, /* time counts */
    SW_LIFELINE_MEETS,   /* it does, but there may be a line soon */
    SW_LIFELINE_RUNS,    /* it does: the process has run since */
    SW_LIFELINE_WAIT,    /* it has not run since, or what it sent last may come: time does not */
    SW_LIFELINE_DEAD,
};
/* What has not been answered. */
struct sw_lifeline_miss {
    uint64_t since_ns; /* when it was sent */
    uint32_t qpn, dest_qpn;
    uint16_t source_port; /* by which nothing is answered again and again; 0: this was once */
};
/* What of a process that does not answer. Asks it, for the next time. A process that is asked with
 * a source port claims that flow (sw_port_claim_flow()), as does this one that of the answers. */
enum sw_lifeline_says sw_lifeline_ask(struct sw_lifeline *line,
                                      const struct sw_lifeline_miss *miss);

/* ---- of who receives: rx_lock held ---- */

/* True: it was a MAD of ours. It is put aside for the engine. */
bool sw_lifeline_take_mad(const struct sw_arrival *arrival, const uint8_t mad[SW_MAD_BYTES]);

/* ---- of the engine: rx_lock held ---- */

/* Whether peers wait to hear that all that had come was received; and: it was. */
bool sw_lifeline_owes(void);
void sw_lifeline_answer(void);
/* Whether there is something to be done. */
bool sw_lifeline_is_due(uint64_t now_ns);
/* Returns when to call again. */
uint64_t sw_lifeline_step(uint64_t now_ns);
bool sw_lifeline_wants(void);

/* Is told of each far process that is found dead, by the engine with rx_lock held: what is to be
 * done is put aside. */
typedef void (*sw_lifeline_death_fn)(const struct in6_addr *dest, uint32_t slot);
void sw_lifeline_on_death(sw_lifeline_death_fn tell);

#endif
