/* SPDX-License-Identifier: BSD-2-Clause */
/* One row for each type that can be created (IBTA Vol1 9.8, 10.7.2 and table 44 of 11.4.1.1). */
#include "device/rules/qp_type.h"

#include <stddef.h>

#define OP(name) (1u << IBV_WR_##name)
#define SENDS (OP(SEND) | OP(SEND_WITH_IMM))
#define WRITES (OP(RDMA_WRITE) | OP(RDMA_WRITE_WITH_IMM))
#define WINDOWS (OP(LOCAL_INV) | OP(BIND_MW))
#define ATOMICS (OP(ATOMIC_CMP_AND_SWP) | OP(ATOMIC_FETCH_AND_ADD))

static const struct sw_qp_type rc = {
    .send_opcodes =
        SENDS | OP(SEND_WITH_INV) | WRITES | OP(RDMA_READ) | ATOMICS | OP(ATOMIC_WRITE) | WINDOWS,
    .has_rq = true,
};

static const struct sw_qp_type uc = {
    .send_opcodes = SENDS | OP(SEND_WITH_INV) | WRITES | WINDOWS,
    .has_rq = true,
    .has_sqe = true,
};

static const struct sw_qp_type ud = {
    .send_opcodes = SENDS,
    .is_datagram = true,
    .has_rq = true,
    .has_sqe = true,
};

/* Only sends, to any SRQ of the domain (annex A14). */
static const struct sw_qp_type xrc_send = {
    .send_opcodes = SENDS | OP(SEND_WITH_INV) | WRITES | OP(RDMA_READ) | ATOMICS | OP(ATOMIC_WRITE),
};

/* Only receives, for the SRQs of its domain. */
static const struct sw_qp_type xrc_recv = {
    .send_opcodes = 0,
};

/* Immediate data and atomics (RFC 7306) are not what its peers know. */
static const struct sw_qp_type iwarp = {
    .send_opcodes = OP(SEND) | OP(SEND_WITH_INV) | OP(RDMA_WRITE) | OP(RDMA_READ) | WINDOWS,
    .has_rq = true,
    .is_iwarp = true,
};

const struct sw_qp_type *sw_qp_type_of_iwarp(enum ibv_qp_type type)
{
    return type == IBV_QPT_RC ? &iwarp : NULL;
}

const struct sw_qp_type *sw_qp_type(enum ibv_qp_type type)
{
    switch (type) {
    case IBV_QPT_RC:
        return &rc;
    case IBV_QPT_UC:
        return &uc;
    case IBV_QPT_XRC_SEND:
        return &xrc_send;
    case IBV_QPT_XRC_RECV:
        return &xrc_recv;
    case IBV_QPT_UD:
        return &ud;
    case IBV_QPT_RAW_PACKET:
    case IBV_QPT_DRIVER:
        return NULL;
    }
    return NULL; /* a value from outside the enum */
}
