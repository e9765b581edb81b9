/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * As much of connection management as it takes to connect to a program of the guest: the MADs of a
 * captured connection with our addresses and numbers in them. IBTA Vol1 12.6.
 */
#ifndef SW_TESTS_KERNEL_CM_H
#define SW_TESTS_KERNEL_CM_H

#include "peer.h"

enum { CM_MAD_BYTES = 256, CM_QKEY = 0x80010000 };
enum cm_message { CM_REQ = 0x10, CM_REJ = 0x12, CM_REP = 0x13, CM_RTU = 0x14 };

struct connection {
    uint32_t local_id, remote_id;
    uint32_t qpn, remote_qpn;
    uint32_t send_psn, receive_psn;
};

/* Takes the first REQ of a capture as the pattern. Exits the program if there is none. */
void cm_load(const char *capture_path);

/* The packet of a REQ to a TCP port (of the guest's RDMA port space) for a new connection; its
 * payload is static. */
struct sw_packet cm_request(const struct peer *peer, uint16_t port, struct connection *connection);
/* The answer to it: CM_REP (which fills in the connection) or CM_REJ; 0 when nothing has come for
 * that time. */
int cm_answer(struct peer *peer, struct connection *connection, int timeout_ms);
/* Ready to use. */
void cm_confirm(const struct peer *peer, const struct connection *connection);

/* All of it. */
bool cm_connect(struct peer *peer, uint16_t port, struct connection *connection);

#endif
