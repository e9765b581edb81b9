/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The target side of datagrams: what becomes of one at a QP of this process, whichever link brought
 * it. A datagram that is not wanted is dropped without a word and counted (IBTA Vol1 9.8.3.3).
 */
#ifndef SW_DEVICE_SERVE_DATAGRAM_H
#define SW_DEVICE_SERVE_DATAGRAM_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct sw_qp;

struct sw_datagram {
    const uint8_t *grh; /* SW_GRH_BYTES */
    const uint8_t *payload;
    uint32_t len_bytes;
    uint32_t src_qpn;
    uint32_t qkey;
    uint32_t imm; /* network byte order */
    bool has_imm;
    bool is_solicited;
    bool is_multicast;
    bool is_far;  /* from another host */
    bool is_copy; /* another QP of the group has it too: the port got it once */
    uint8_t sl;
};

/* Takes the QP's lock. Returns whether the sender knew the Q_Key. */
bool sw_datagram_deliver(struct sw_qp *qp, const struct sw_datagram *datagram);

#endif
