/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lives of a connection. A program may reset a queue pair and connect it to the same peer
 * again, with the same PSNs. Packets of its earlier lives may still be on the wire or in a socket
 * then. Hardware would have dropped them by that time. So a Sidewire queue pair numbers its lives,
 * from 0 to 15 and again from 0, and puts the number into each packet (transport/emission.h). A
 * packet whose number is older than the peer's present one is stale. A number alone proves nothing:
 * identity.c says which packets are believed.
 */
#include "link/roce/qp/life.h"

#include <assert.h>

#include "base/clock.h"
#include "link/roce/qp/qp.h"
#include "link/roce/roce.h"

/* A number that is not among the last SW_ROCE_LIVES is that of a new life. Lives of which no packet
 * came may lie between. */
static_assert(2 * SW_ROCE_LIVES < SW_SELECTIVE_LIFE, "numbers come around");

#define REMNANTS_NS (500 * SW_NS_PER_MS) /* no packet of an earlier life comes later than this */

/* By index of the QP, which is locked. */
static uint8_t sources[SW_MAX_QP]; /* source ports used so far */
static uint32_t lives[SW_MAX_QP];  /* begun so far */
static struct past {
    uint32_t qpn, dest_qpn;
    struct in6_addr dest;
    uint8_t mark; /* the number of the peer's last life that we have heard of */
    uint32_t own; /* the number of our life at that time */
} pasts[SW_MAX_QP];

/* Routers spread flows by the source port, so one life keeps its own (IBTA annex A17.4.4). */
uint8_t sw_roce_life_source(const struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
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
    sw_lock_assert_held(&r->qp->lock);
    const struct past *past = &pasts[r->qp->index];
    const uint32_t own = lives[r->qp->index]++, since = own - past->own;
    r->life.own = own & SW_SELECTIVE_LIFE;
    if (is_with(past, r) && since <= SW_SELECTIVE_LIFE + 1 - SW_ROCE_LIVES)
        r->life.past_mark = past->mark;
}

void sw_roce_life_end(const struct sw_roce_qp *r)
{
    sw_lock_assert_held(&r->qp->lock);
    if (r->life.peer_mark) /* if nothing was heard in this life, the older entry still holds */
        pasts[r->qp->index] = (struct past){.qpn = r->qp->qpn,
                                            .dest_qpn = r->qp->dest_qpn,
                                            .dest = r->path.dest,
                                            .mark = r->life.peer_mark,
                                            .own = lives[r->qp->index] - 1};
}

/* If packets of one old number alone keep coming, they are not left over: the numbers have come
 * around. Left-over packets may have waited in a socket while this process had no processor. So the
 * time counts from when all that waited was received. */
static bool has_come_around(struct sw_roce_qp *r, uint64_t now_ns)
{
    if (r->life.peer_mark)
        return false;
    if (!r->life.doubted_ns)
        r->life.doubted_ns = now_ns;
    return atomic_load_explicit(&sw_roce.heard_ns, memory_order_relaxed) >=
           r->life.doubted_ns + REMNANTS_NS;
}

bool sw_roce_life_is_peers(const struct sw_roce_qp *r, uint8_t mark)
{
    sw_lock_assert_held(&r->qp->lock);
    return r->life.peer_mark ? mark == r->life.peer_mark : mark && mark != r->life.past_mark;
}

bool sw_roce_life_is_over(struct sw_roce_qp *r, uint8_t mark, uint64_t now_ns)
{
    sw_lock_assert_held(&r->qp->lock);
    if (__builtin_expect(mark == r->life.peer_mark, 1) || !sw_selective_is_marked(mark))
        return false;
    if (r->ended_ns)
        return true; /* our life is over: the packet is of the peer's next one, or older */
    const uint8_t last = r->life.peer_mark ? r->life.peer_mark : r->life.past_mark;
    const bool is_old = last && ((last - mark) & SW_SELECTIVE_LIFE) < SW_ROCE_LIVES;
    return is_old && !has_come_around(r, now_ns);
}
