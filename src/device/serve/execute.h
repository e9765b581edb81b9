/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a request does at the process it comes to, whichever link brought it: the checks, the
 * memory, the receive and its completion. The consequence of the verdict is in the table of
 * device/rules/target.h. With the QP locked; accesses by key between sw_mr_serve_begin() and
 * _end().
 */
#ifndef SW_DEVICE_SERVE_EXECUTE_H
#define SW_DEVICE_SERVE_EXECUTE_H

#include "device/queue/qp_impl.h"
#include "device/queue/srq_impl.h"
#include "device/rules/target.h"

/* A message, as far as the rules go. */
struct sw_inbound {
    uint32_t pd;        /* that remote accesses are checked against */
    struct sw_srq *srq; /* the one an XRC message names; NULL: its receive is the QP's */
    uint32_t imm;       /* as in the work request, or the key to invalidate */
    bool has_imm;
    bool has_inv;
    bool is_solicited;
};

/* Which SRQ, and so which PD, an XRC message is for (IBTA Vol1 annex A14). false: no such SRQ. */
bool sw_execute_name_srq(struct sw_qp *qp, uint32_t srq_num, struct sw_inbound *message);

/* Takes the receive that the message is for; false: there is none. */
bool sw_execute_take_recv(struct sw_qp *qp, const struct sw_inbound *message,
                          struct sw_recv_claim *out);

/*
 * The faults of a SEND, in the order in which every link finds them: there is no receive, the
 * message is longer than it, its memory is not there (as far as the message goes), the key to
 * invalidate is not the sender's. The key is last, as it comes with the last packet. These are the
 * second and third of them, for a part of a message; then the fourth, at its end.
 */
enum sw_verdict sw_execute_fill(const struct sw_recv_claim *claim, uint64_t at, const void *from,
                                uint32_t len_bytes);
enum sw_verdict sw_execute_invalidate(struct sw_qp *qp, const struct sw_inbound *message,
                                      uint32_t rkey);

/* The completion of a receive, which was posted as `wr_id`: what it says, and its way to the
 * program. */
void sw_execute_completion(const struct sw_qp *qp, const struct sw_inbound *message, uint64_t wr_id,
                           uint32_t len_bytes, enum ibv_wc_opcode opcode, enum ibv_wc_status status,
                           struct ibv_wc *out);
void sw_execute_complete(struct sw_qp *qp, const struct sw_inbound *message,
                         const struct sw_recv_claim *claim, uint32_t len_bytes,
                         enum ibv_wc_opcode opcode, enum ibv_wc_status status);

/* Whether a remote access to [addr, addr + len) is allowed; *va is where that is. An access to
 * nothing is looked at by the rights of the QP alone. */
enum sw_verdict sw_execute_check(struct sw_qp *qp, const struct sw_inbound *message, uint32_t need,
                                 uint32_t rkey, uint64_t addr, uint64_t len_bytes, uint8_t **va);

/* Why a demand was refused, for links that tell their peer. */
enum sw_access_fault sw_execute_fault_of(const struct sw_qp *qp, const struct sw_demand *demand);

/* What came in one packet, or in several that follow each other. */
struct sw_pieces {
    const uint8_t *from;   /* the first; */
    uint32_t stride_bytes; /* the others begin so far behind each other */
    uint32_t count;
    uint32_t len_bytes; /* of each */
};

/* A part of a WRITE; `last`: the last bytes of each piece are seen after the others of it. Pieces
 * go next to each other; they are written all or none. In order where the program wants that. */
enum sw_verdict sw_execute_write(struct sw_qp *qp, const struct sw_inbound *message, uint32_t rkey,
                                 uint64_t addr, const struct sw_pieces *pieces, bool last);

/* `opcode`: IBV_WR_ATOMIC_*; *original is the word before. */
enum sw_verdict sw_execute_atomic(struct sw_qp *qp, const struct sw_inbound *message,
                                  uint8_t opcode, uint32_t rkey, uint64_t addr,
                                  uint64_t compare_add, uint64_t swap, uint64_t *original);

/* Copies so that the last bytes become visible after all others: programs poll them. */
void sw_copy_ordered(uint8_t *to, const uint8_t *from, uint64_t len_bytes);
/* The same, and none before those below it: sw_qp_keep_order(). */
void sw_copy_all_ordered(uint8_t *to, const uint8_t *from, uint64_t len_bytes);

#endif
