/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a record says of a message, whether the request waited in the queue or is executed before it
 * is queued. The kind of the record says how the bytes reach the target.
 */
#ifndef SW_LINK_DIRECT_SEND_RECORD_HEAD_H
#define SW_LINK_DIRECT_SEND_RECORD_HEAD_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/queue/sq.h"
#include "device/rules/target.h"
#include "link/direct/process/block.h"

struct sw_record_head {
    uint32_t len_bytes;
    uint32_t imm;  /* or the key to invalidate */
    uint8_t flags; /* SW_REC_* */
};

static inline uint8_t sw_record_head_flags(uint32_t opcode, bool is_solicited)
{
    const bool has_imm = opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    return (uint8_t)((is_solicited ? SW_REC_SOLICITED : 0) | (has_imm ? SW_REC_IMM : 0) |
                     (opcode == IBV_WR_SEND_WITH_INV ? SW_REC_INV : 0));
}

/* The one for a request in the queue. */
static inline struct sw_record_head sw_record_head_queued(const struct sw_wqe *wqe)
{
    return (struct sw_record_head){
        .len_bytes = wqe->len_bytes,
        .imm = wqe->imm,
        .flags = sw_record_head_flags(wqe->opcode, wqe->flags & SW_WQE_SOLICITED)};
}

/* The one for a SEND of one element that is not queued yet: sw_sq_may_skip(). */
static inline struct sw_record_head sw_record_head_posted(const struct ibv_send_wr *wr)
{
    return (struct sw_record_head){
        .len_bytes = wr->sg_list->length,
        .imm = wr->opcode == IBV_WR_SEND_WITH_IMM ? wr->imm_data : 0,
        .flags = sw_record_head_flags(wr->opcode, wr->send_flags & IBV_SEND_SOLICITED)};
}

/* The head of its record, which was reserved. `verdict`: SW_ACK, or why its bytes are not there. */
static inline void sw_record_head_write(struct sw_record *record, enum sw_record_kind kind,
                                        enum sw_verdict verdict, const struct sw_record_head *head)
{
    record->kind = (uint8_t)kind;
    record->flags = head->flags;
    record->verdict = (uint8_t)verdict;
    record->len_bytes = head->len_bytes;
    record->imm = head->imm;
}

#endif
