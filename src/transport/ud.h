/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unreliable datagrams: one packet each, PSNs that nobody looks at. device/serve/datagram.h has the
 * rules that a datagram meets at its QP (Q_Key, receive, length). IBTA Vol1 9.8.3.
 */
#ifndef SW_TRANSPORT_UD_H
#define SW_TRANSPORT_UD_H

#include "transport/emission.h"

struct sw_ud {
    uint32_t qpn, psn, mtu_bytes;
    uint16_t pkey;
};

struct sw_ud_send {
    uint32_t dest_qpn, qkey; /* the Q_Key as it is sent: that of the QP, if the request's has its
                                high bit set (10.2.5) */
    uint32_t len_bytes, imm_be;
    bool has_imm, solicited;
};

/* The packet of a datagram, the request at `position`, and the next PSN. false: longer than the
 * MTU, nothing has changed. */
bool sw_ud_emit(struct sw_ud *ud, const struct sw_ud_send *send, uint32_t position,
                struct sw_emission *out);

/* Whether a packet is a datagram that fits; others are dropped in silence (9.8.3.2). */
bool sw_ud_admits(const struct sw_ud *ud, const struct sw_packet *packet);

#endif
