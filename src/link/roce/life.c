/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lives of a connection. A queue pair may be reset and connected to the same one again, with
 * the PSNs that it had before, while packets of the lives before still wait in a socket: hardware
 * would have seen and dropped them by then. A Sidewire peer sends those of each life from another
 * UDP source port, by which they are known.
 */
#include <assert.h>
#include <string.h>

#include "link/roce/roce.h"

/* A peer of fewer source ports than these and one would be taken for stale. */
static_assert(SW_ROCE_LIVES + 1 < SW_PORT_SENDERS, "one is of this life, one to go on from");

/* By QP index; with the QP locked. */
static uint8_t sources[SW_MAX_QP]; /* source ports used so far */
static struct past {
    uint32_t qpn, dest_qpn;
    struct in6_addr dest;
    uint16_t ports[SW_ROCE_LIVES]; /* of the peer, in the last lives with it: the latest first */
} pasts[SW_MAX_QP];

/* Routers spread flows by the source port, so one life keeps its own (IBTA annex A17.4.4). */
uint8_t sw_roce_life_source(const struct sw_qp *qp)
{
    uint32_t mixed = (qp->qpn ^ qp->dest_qpn) * 2654435761u;
    return (uint8_t)((mixed >> 24) + sources[qp->index]++);
}

static bool is_with(const struct past *past, const struct sw_roce_qp *r)
{
    return past->qpn == r->qp->qpn && past->dest_qpn == r->qp->dest_qpn &&
           IN6_ARE_ADDR_EQUAL(&past->dest, &r->path.dest);
}

void sw_roce_life_begin(struct sw_roce_qp *r)
{
    const struct past *past = &pasts[r->qp->index];
    if (r->qp->type != IBV_QPT_UC && is_with(past, r))
        memcpy(r->stale_ports, past->ports, sizeof(r->stale_ports));
}

void sw_roce_life_end(const struct sw_roce_qp *r)
{
    struct past *past = &pasts[r->qp->index];
    if (!r->first_port)
        return; /* the peer gave no sign of life: what is known of it still holds */
    if (!is_with(past, r))
        *past = (struct past){.qpn = r->qp->qpn, .dest_qpn = r->qp->dest_qpn, .dest = r->path.dest};
    memmove(past->ports + 1, past->ports, sizeof(past->ports) - sizeof(past->ports[0]));
    past->ports[0] = r->first_port;
}

bool sw_roce_life_is_over(const struct sw_roce_qp *r, const struct sw_arrival *arrival,
                          const struct sw_packet *packet)
{
    if (__builtin_expect(!r->stale_ports[0], 1))
        return false;
    bool is_stale = false;
    for (int i = 0; i < SW_ROCE_LIVES; i++)
        is_stale |= r->stale_ports[i] == arrival->source_port;
    return is_stale && packet->bth.reserved7 == SW_SELECTIVE_MARK;
}
