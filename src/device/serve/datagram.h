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

#include "device/serve/receive.h"

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

/*
 * The same of datagrams that follow each other, with the locks taken once for those that go to one
 * QP. A batch has them until it ends, which it does where the next one is for another QP, or is out
 * of the ordinary. Begin with all zero.
 *
 *     struct sw_datagram_batch batch = {0};
 *     while (there is one)
 *         sw_datagram_batch_deliver(&batch, qp, &datagram);
 *     sw_datagram_batch_end(&batch);
 */
struct sw_datagram_batch {
    struct sw_qp *qp; /* locked; NULL: nothing is */
    struct sw_receive_run receives;
    uint32_t count;
};
void sw_datagram_batch_deliver(struct sw_datagram_batch *batch, struct sw_qp *qp,
                               const struct sw_datagram *datagram);
/* Also before anything else that takes the lock of a QP. */
void sw_datagram_batch_end(struct sw_datagram_batch *batch);

#endif
