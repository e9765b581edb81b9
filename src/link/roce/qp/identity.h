/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether packets are the peer's (identity.c). With the QP locked. */
#ifndef SW_LINK_ROCE_QP_IDENTITY_H
#define SW_LINK_ROCE_QP_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "link/roce/port/arrival.h"
#include "link/roce/qp/qp.h"
#include "wire/packet.h"

/* Whether a packet from the peer's address is the peer's, where that is not plain. Takes note of
 * what it is known by from then on. */
bool sw_roce_identify(struct sw_roce_qp *r, const struct sw_arrival *arrival,
                      const struct sw_packet *packet, uint64_t now_ns);
/* The same of a congestion notification. */
bool sw_roce_is_notified(const struct sw_roce_qp *r, const struct sw_arrival *arrival);

/* The same as sw_roce_identify(), for the most part at once. */
static inline bool sw_roce_is_of_peer(struct sw_roce_qp *r, const struct sw_arrival *arrival,
                                      const struct sw_packet *packet, uint64_t now_ns)
{
    const bool is_plain = arrival->source_port + 1u == r->peer.ports[packet->opcode->is_request] &&
                          packet->bth.reserved7 == r->life.peer_mark;
    if (__builtin_expect(!is_plain, 0))
        return sw_roce_identify(r, arrival, packet, now_ns);
    r->peer.heard_ns = now_ns;
    return true;
}

#endif
