/* SPDX-License-Identifier: BSD-2-Clause */
/* What tells the types of queue pairs apart, where it is not their states (qp_state.h). Pure. */
#ifndef SW_DEVICE_RULES_QP_TYPE_H
#define SW_DEVICE_RULES_QP_TYPE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct sw_qp_type {
    uint32_t send_opcodes; /* a bit for each enum ibv_wr_opcode that may be posted: table 44 */
    bool is_datagram;      /* each request names its destination */
    bool has_sqe;          /* a failed request takes the QP to SQE rather than ERR: 10.3.1.6 */
    bool has_rq;           /* takes receives of its own or of the one SRQ it was created with */
    bool is_iwarp;         /* connection management moves it to RTS: RFC 5040's states */
};

/* NULL for a type that cannot be created. */
const struct sw_qp_type *sw_qp_type(enum ibv_qp_type type);
/* The same on an iWARP device. */
const struct sw_qp_type *sw_qp_type_of_iwarp(enum ibv_qp_type type);

#endif
