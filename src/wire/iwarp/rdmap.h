/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What RDMAP says in segments of DDP: one table of its opcodes, and the bodies of those messages
 * that have one. RFC 5040 s4; atomics and immediate data RFC 7306 s5, s6. FLUSH and the ATOMIC
 * WRITE are no RFC's: queue pairs of RoCE devices have them among themselves (docs/tcp.md).
 *
 *   FLUSH, answered as an atomic is:  u32 type | u32 ID | u32 STag | u64 TO | u32 length
 */
#ifndef SW_WIRE_IWARP_RDMAP_H
#define SW_WIRE_IWARP_RDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sw_rdmap_kind {
    SW_RDMAP_WRITE,
    SW_RDMAP_READ_REQUEST,
    SW_RDMAP_READ_RESPONSE,
    SW_RDMAP_SEND,
    SW_RDMAP_SEND_INV,
    SW_RDMAP_SEND_SE,
    SW_RDMAP_SEND_SE_INV,
    SW_RDMAP_TERMINATE,
    SW_RDMAP_IMMEDIATE,
    SW_RDMAP_IMMEDIATE_SE,
    SW_RDMAP_ATOMIC_REQUEST,
    SW_RDMAP_ATOMIC_RESPONSE,
    SW_RDMAP_FLUSH,
    SW_RDMAP_KINDS, /* these are the numbers of the wire */
};

/* Queues of untagged messages. */
enum sw_ddp_queue {
    SW_DDP_QUEUE_SEND, /* and immediate data */
    SW_DDP_QUEUE_REQUEST,
    SW_DDP_QUEUE_TERMINATE,
    SW_DDP_QUEUE_ATOMIC_RESPONSE,
    SW_DDP_QUEUES,
};

enum sw_rdmap_len {
    SW_RDMAP_READ_BYTES = 28,
    SW_RDMAP_ATOMIC_REQUEST_BYTES = 52,
    SW_RDMAP_ATOMIC_RESPONSE_BYTES = 12,
    SW_RDMAP_IMMEDIATE_BYTES = 8,
    SW_RDMAP_FLUSH_BYTES = 24,
};

struct sw_rdmap_opcode {
    const char *name;
    uint8_t number; /* enum sw_rdmap_kind */
    bool is_tagged;
    uint8_t queue;    /* enum sw_ddp_queue, of an untagged one */
    uint8_t body_len; /* it has exactly so many bytes in one segment; 0: any number in any */
    bool is_send, solicited, invalidates;
};

/* NULL: there is no such opcode. */
const struct sw_rdmap_opcode *sw_rdmap_opcode_of(uint8_t number);

struct sw_rdmap_read {
    uint32_t sink_stag, len_bytes, source_stag;
    uint64_t sink_to, source_to;
};
void sw_rdmap_read_encode(const struct sw_rdmap_read *read, uint8_t to[SW_RDMAP_READ_BYTES]);
void sw_rdmap_read_decode(const uint8_t body[SW_RDMAP_READ_BYTES], struct sw_rdmap_read *out);

enum sw_rdmap_atomic_kind {
    SW_RDMAP_FETCH_ADD = 0,
    SW_RDMAP_CMP_SWAP = 2,
    SW_RDMAP_ATOMIC_WRITE = 15, /* ours: stores `data`, as it lies in memory */
};
struct sw_rdmap_atomic {
    uint8_t kind; /* enum sw_rdmap_atomic_kind, or what is not known */
    uint32_t id;
    uint32_t stag;
    uint64_t to;
    uint64_t data, data_mask; /* to be added, or to be stored */
    uint64_t compare, compare_mask;
};
void sw_rdmap_atomic_encode(const struct sw_rdmap_atomic *atomic,
                            uint8_t to[SW_RDMAP_ATOMIC_REQUEST_BYTES]);
void sw_rdmap_atomic_decode(const uint8_t body[SW_RDMAP_ATOMIC_REQUEST_BYTES],
                            struct sw_rdmap_atomic *out);

struct sw_rdmap_flush {
    uint32_t type; /* as in a FETH: wire/packet.h */
    uint32_t id, stag, len_bytes;
    uint64_t to;
};
void sw_rdmap_flush_encode(const struct sw_rdmap_flush *flush, uint8_t to[SW_RDMAP_FLUSH_BYTES]);
void sw_rdmap_flush_decode(const uint8_t body[SW_RDMAP_FLUSH_BYTES], struct sw_rdmap_flush *out);

struct sw_rdmap_original {
    uint32_t id;
    uint64_t value;
};
void sw_rdmap_original_encode(const struct sw_rdmap_original *original,
                              uint8_t to[SW_RDMAP_ATOMIC_RESPONSE_BYTES]);
void sw_rdmap_original_decode(const uint8_t body[SW_RDMAP_ATOMIC_RESPONSE_BYTES],
                              struct sw_rdmap_original *out);

#endif
