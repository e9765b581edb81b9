/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that has an XRC domain open, with an SRQ of it (own PD, CQ and memory), and does what
 * it is told over a socket.
 */
#ifndef SW_TESTS_INTEGRITY_XRC_MEMBER_H
#define SW_TESTS_INTEGRITY_XRC_MEMBER_H

#include "sem.h"

#define MEMBER_BYTES RIG_BYTES

struct member { /* as the one who tells it sees it */
    pid_t pid;
    int sock;
    uint32_t srq_num, target_qpn;
    uint64_t addr;
    uint32_t rkey;
};

/* Starts it on the domain of this file. No device may be open in the caller. */
void member_start(struct member *member, int fd);
/* It creates a target QP, connected to `ep`, which is an initiator. */
void member_target(struct member *member, struct vu_ep *ep);
enum ibv_qp_state member_target_state(struct member *member);
void member_recv(struct member *member, uint64_t wr_id, uint32_t offset, uint32_t len_bytes);
struct ibv_wc member_expect(struct member *member, uint64_t wr_id, enum ibv_wc_status status);
void member_expect_none(struct member *member, unsigned int ms);
/* All bytes of the range have this value. */
void member_bytes(struct member *member, uint32_t offset, uint32_t len_bytes, uint8_t value);
void member_expect_event(struct member *member, enum ibv_event_type type);
/* It destroys its SRQ; or with it its domain, and opens that again. Makes a new one. */
void member_drop_srq(struct member *member);
void member_reopen(struct member *member, bool domain);
/* ibv_open_qp: errno of the member's attempt. */
int member_open_qp(struct member *member, uint32_t qpn);
enum ibv_qp_state member_opened_state(struct member *member);
int member_modify_opened(struct member *member, enum ibv_qp_state state);
void member_close_opened(struct member *member);
void member_close_target(struct member *member);
/* It closes everything and ends well. */
void member_end(struct member *member);
void member_kill(struct member *member);
/* Waits until so many processes have queue pairs or lanes to it; dead ones until it knows. */
void member_await_clients(const struct member *member, int count);

struct ibv_xrcd *member_open_domain(struct ibv_context *ctx, int fd, int oflags);

/* Where a request of an XRC initiator goes. */
struct xrc_to {
    uint32_t srq_num, rkey;
    uint64_t addr;
};
/* A request on the same offset of the rig's buffer and the remote one; an atomic adds 5. */
int xrc_post(struct ibv_qp *qp, struct rig *rig, enum ibv_wr_opcode opcode, uint64_t wr_id,
             const struct xrc_to *to, uint32_t offset, uint32_t len_bytes);

#endif
