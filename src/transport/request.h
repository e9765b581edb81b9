/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A work request as the transport sees it. The machine keeps a ring of them beside the send queue
 * of its user, at the same positions (which run freely); where the data lies is its user's
 * business.
 */
#ifndef SW_TRANSPORT_REQUEST_H
#define SW_TRANSPORT_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

enum sw_request_kind {
    SW_REQUEST_SEND,
    SW_REQUEST_WRITE,
    SW_REQUEST_READ,
    SW_REQUEST_CMP_SWAP,
    SW_REQUEST_FETCH_ADD,
    SW_REQUEST_ATOMIC_WRITE,
    SW_REQUEST_FLUSH,
    SW_REQUEST_LOCAL, /* nothing for the wire (a bind, an invalidate): it only keeps its place */
};

enum sw_request_flags {
    SW_REQUEST_FENCE = 1,
    SW_REQUEST_SOLICITED = 2,
    SW_REQUEST_IMM = 4, /* imm_or_key is sent as immediate data (network byte order) */
    SW_REQUEST_INV = 8, /* imm_or_key is a key to invalidate */
};

struct sw_request {
    uint64_t remote_addr;
    uint64_t compare_add; /* ATOMIC WRITE: the eight bytes, as in memory */
    uint64_t swap;
    uint32_t rkey;
    uint32_t len_bytes; /* of FLUSH: the range's */
    uint32_t imm_or_key;
    uint32_t srq_num;    /* XRC */
    uint32_t flush_type; /* enum sw_flush_type */
    uint8_t kind;
    uint8_t flags;
    /* The machine's. */
    bool is_split; /* goes as WRITE Only packets, each with its own RETH */
    uint8_t pad;
    uint32_t seq;   /* of its first packet */
    uint32_t count; /* of packets, or of a READ's response packets: at least 1, LOCAL: 0 */
};

/* Whether an answer of its own, with something in it, completes it: these are limited by
 * max_rd_atomic, fences wait for them, and an ACK for something later does not do. */
static inline bool sw_request_is_answered(const struct sw_request *request)
{
    return request->kind >= SW_REQUEST_READ && request->kind <= SW_REQUEST_FLUSH;
}

#endif
