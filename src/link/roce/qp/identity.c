/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a packet that names a connection, and comes from its peer's address, is the peer's.
 * Anybody on that host may send one, and a forger of addresses may anywhere. So nothing of it is
 * believed, and it changes nothing, before it has shown what strangers do not know:
 *
 *   the UDP source port and the life (life.c) that the peer was heard from, or else
 *   the PSN: of a request the expected one, of an answer one that is on its way here.
 *
 * A stranger hits the expected PSN once in 2^24 packets, one on its way up to once in 2^13: so that
 * counts only where nothing is known of the peer yet, when few are on their way, or where the peer
 * has been silent, answers are missed, and it comes twice unless few are awaited.
 *
 * Users of one host cannot send from each other's ports. The peer changes its own where packets are
 * lost (repath.h), and a connection that begins anew has another one.
 */
#include "link/roce/qp/identity.h"

#include "base/clock.h"
#include "link/roce/port/arrival.h"
#include "link/roce/qp/life.h"
#include "link/roce/qp/qp.h"

#define SILENT_NS (10 * SW_NS_PER_MS) /* shorter than the timers after which a peer changes */
#define TWICE_NS SW_NS_PER_MS         /* an answer to what was sent again, not a volley */
#define FEW_PSNS 16u                  /* on their way: a stranger hits one once in 2^20 packets */

/* What is said of a sender, and when. */
struct claim {
    uint32_t port; /* and 1 */
    uint8_t mark;  /* 0: it is not Sidewire's */
    bool asks;     /* it is a request */
    uint64_t now_ns;
};

static void learn_peer(struct sw_roce_qp *r, const struct claim *claim)
{
    r->peer.is_known = true;
    r->peer.heard_ns = claim->now_ns;
    r->peer.ports[claim->asks] = claim->port;
    if (!claim->mark)
        return;
    r->peer.ports[!claim->asks] = claim->port; /* others may answer from another one */
    r->life.peer_mark = claim->mark;
}

static bool identity_is_silent(const struct sw_roce_qp *r, uint64_t now_ns)
{
    return now_ns >= r->peer.heard_ns + SILENT_NS;
}

static enum sw_place identity_place_of(const struct sw_roce_qp *r, const struct sw_packet *packet)
{
    if (packet->opcode->is_request)
        return r->receives ? sw_responder_place(&r->responder, packet) : SW_PLACE_ASTRAY;
    const bool is_awaited = r->ring && sw_requester_awaits(&r->requester, packet->bth.psn);
    return is_awaited ? SW_PLACE_EXPECTED : SW_PLACE_ASTRAY;
}

static bool is_heard_from(const struct sw_roce_qp *r, const struct claim *claim)
{
    return r->peer.is_known && claim->mark == r->life.peer_mark &&
           (claim->port == r->peer.ports[0] || claim->port == r->peer.ports[1]);
}

/* Nothing is known of the senders of such packets. */
static bool is_unknown(const struct sw_roce_qp *r, const struct claim *claim)
{
    return !r->peer.is_known || (!r->life.peer_mark && !claim->mark && !r->peer.ports[claim->asks]);
}

/* An answer from another port or life. The last one of a peer that ends comes once only, so where
 * few are awaited once is enough. */
static bool is_missed(struct sw_roce_qp *r, const struct claim *claim)
{
    const struct sw_flight *flight = &r->requester.flight;
    if (!identity_is_silent(r, claim->now_ns) || r->requester.retry.backoff <= 1)
        return false;
    if (flight->next - flight->una <= FEW_PSNS)
        return true;
    if (r->peer.claim_port == claim->port && r->peer.claim_ns > r->peer.heard_ns)
        return claim->now_ns >= r->peer.claim_ns + TWICE_NS;
    r->peer.claim_port = claim->port;
    r->peer.claim_ns = claim->now_ns;
    return false;
}

static bool identify_reliable(struct sw_roce_qp *r, const struct sw_packet *packet,
                              const struct claim *claim)
{
    const enum sw_place place = identity_place_of(r, packet);
    if (place == SW_PLACE_ASTRAY || sw_roce_life_is_over(r, claim->mark, claim->now_ns))
        return false;
    const bool is_exact = place == SW_PLACE_EXPECTED;
    if (!r->peer.is_known && place != SW_PLACE_DUPLICATE &&
        sw_fallback_take(&r->fallback, SW_FALLBACK_PACKET, 0) == SW_FALLBACK_REFUSE)
        return false; /* TCP is about to carry the connection */
    if (is_heard_from(r, claim)) {
        learn_peer(r, claim);
        return true;
    }
    if (is_unknown(r, claim)) {
        if (is_exact)
            learn_peer(r, claim);
        return place != SW_PLACE_DUPLICATE; /* of what? */
    }
    if (!claim->mark != !r->life.peer_mark)
        return false;
    if (claim->asks ? is_exact : is_missed(r, claim)) {
        learn_peer(r, claim);
        return true;
    }
    /* A request that was answered, and the answer lost, is answered again to whoever it is. */
    return claim->asks && place == SW_PLACE_DUPLICATE && identity_is_silent(r, claim->now_ns);
}

/* Over UC one side alone may be connected again, and messages begin with any PSN. A peer that
 * counts from its first PSN again would be taken for a late copy of itself; but it comes from
 * another source port. */
static bool identify_unreliable(struct sw_roce_qp *r, const struct sw_packet *packet,
                                const struct claim *claim)
{
    struct sw_responder *p = &r->responder;
    const bool begins = packet->opcode->position & SW_FIRST;
    const bool is_first = begins && packet->bth.psn == (p->config.first_psn & SW_PSN_MASK);
    const bool is_next = packet->bth.psn == sw_seq_psn(p->expected);
    if (!claim->asks || !r->receives)
        return false;
    if (is_heard_from(r, claim))
        return true;
    if (r->peer.is_known && is_first)
        sw_responder_begin_anew(p);
    else if (!(is_next || (begins && (!r->peer.is_known || identity_is_silent(r, claim->now_ns)))))
        return false;
    learn_peer(r, claim);
    return true;
}

bool sw_roce_identify(struct sw_roce_qp *r, const struct sw_arrival *arrival,
                      const struct sw_packet *packet, uint64_t now_ns)
{
    sw_lock_assert_held(&r->qp->lock);
    const uint8_t mark = packet->bth.reserved7;
    const bool is_reliable = r->qp->type != IBV_QPT_UC;
    const struct claim claim = {
        .port = arrival->source_port + 1u,
        .mark = is_reliable && sw_selective_is_marked(mark) ? mark : 0,
        .asks = packet->opcode->is_request,
        .now_ns = now_ns,
    };
    return is_reliable ? identify_reliable(r, packet, &claim)
                       : identify_unreliable(r, packet, &claim);
}

/* It has no PSN. Sidewire sends it from the connection's port, others from any, and one that only
 * receives over UC may send nothing else. */
bool sw_roce_is_notified(const struct sw_roce_qp *r, const struct sw_arrival *arrival)
{
    sw_lock_assert_held(&r->qp->lock);
    if (!r->peer.is_known)
        return r->qp->type == IBV_QPT_UC;
    return !r->life.peer_mark || r->peer.ports[0] == arrival->source_port + 1u;
}
