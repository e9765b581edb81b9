/* SPDX-License-Identifier: BSD-2-Clause */
/* One side of a test of datagrams: a UD QP, a buffer, and the other side's address. */
#ifndef SW_TESTS_INTEGRITY_UD_SIDE_H
#define SW_TESTS_INTEGRITY_UD_SIDE_H

#include "sem.h"

#define UD_QKEY 0x11223344u
#define UD_GRH 40u
#define UD_BYTES (1u << 20)
#define UD_QUIET_MS 60
#define UD_EVENT_MS 20000
#define UD_SLOT 8192u /* of the buffer, for one receive */

struct ud_side {
    int sock;
    struct vu_dev dev;
    struct ibv_comp_channel *channel;
    struct ibv_cq *scq, *rcq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    uint8_t *buf;
    struct ibv_mr *mr;
    struct ibv_ah *ah; /* to the other side */
    uint32_t peer_qpn;
};
struct ud_attr {
    bool channel, srq, extended;
    uint32_t qkey; /* 0: UD_QKEY */
    int gid_index; /* -1: the device's default */
};

/* All of it, QP in RTS and addresses traded; attr NULL: default. */
void ud_open(struct ud_side *side, int sock, const struct ud_attr *attr);
void ud_close(struct ud_side *side);
/* The same without waiting for the other side. */
void ud_destroy(struct ud_side *side);
/* Another QP on the same CQs, in RTS. */
struct ibv_qp *ud_qp(struct ud_side *side, uint32_t qkey);
void ud_to(struct ibv_qp *qp, enum ibv_qp_state state, uint32_t qkey);
struct ibv_ah *ud_ah(struct ud_side *side, const union ibv_gid *gid);

/* A receive for header and message at slot `wr_id` of the buffer. */
void ud_recv(struct ud_side *side, struct ibv_qp *qp, uint64_t wr_id, uint32_t len_bytes);
struct ud_send {
    uint64_t wr_id;
    uint32_t at, len_bytes; /* of the buffer */
    unsigned int flags;     /* besides SIGNALED */
    uint32_t imm;           /* host order; 0: none */
    struct ibv_ah *ah;      /* NULL, 0: the other side's QP, UD_QKEY */
    uint32_t qpn, qkey;
};
int ud_post(struct ud_side *side, const struct ud_send *send);
/* Sends to the other side (or where `send` says) and has the completion. */
void ud_send(struct ud_side *side, const struct ud_send *send);
/* The message of the receive `wr_id` consists of this byte. */
void ud_check(const struct ud_side *side, uint64_t wr_id, uint32_t len_bytes, uint8_t value);

#endif
