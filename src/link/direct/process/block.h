/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What one attached client may write: the inbox that a process (its owner) keeps for it. One block
 * per connected QP of the owner.
 *
 * A block carries the client QP's requests and its answers to the owner QP's requests, each as a
 * ring of 64-byte records plus a bounce area for bytes. A record is valid when its `seq` equals its
 * position + 1, so the reader polls the record's own cache line. Rings and areas start zeroed at
 * every binding. The reader says in the block of the other direction what it has consumed.
 */
#ifndef SW_LINK_DIRECT_PROCESS_BLOCK_H
#define SW_LINK_DIRECT_PROCESS_BLOCK_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SW_REQUEST_SLOTS 512u
#define SW_RESPONSE_SLOTS 64u
#define SW_REQUEST_BOUNCE (128u << 10)
#define SW_RESPONSE_BOUNCE (64u << 10)
#define SW_BOUNCE_CHUNK \
    (16u << 10) /* bytes per record at most, so that copying in and out overlap */
#define SW_BLOCK_BYTES (256u << 10)
#define SW_INBOX_BLOCKS 4096u /* at most: as many as its file has room for */

enum sw_record_kind {
    SW_REC_SEND_INLINE = 1, /* payload in this record and the next ones */
    SW_REC_SEND_PLACED,     /* payload already in the posted receive (or refused: see verdict) */
    SW_REC_WRITE_IMM,       /* the write is done; consumes a receive */
    SW_REC_SEND,            /* payload (a piece of it) in the bounce area; answered */
    SW_REC_WRITE,           /* likewise, to be written by the target; answered */
    SW_REC_READ,            /* answered with DATA */
    SW_REC_ATOMIC,          /* answered with the original value */
    SW_REC_FATAL,           /* the client was refused: the owner's QP fails with `verdict` */
    SW_REC_ANSWER,          /* to SEND, WRITE, ATOMIC and refused READs, where more is to be said
                               than that it was done */
    SW_REC_DATA,            /* to READ: a piece of it */
    SW_REC_HELLO,           /* the client has begun to use the QP */
    SW_REC_FLUSH,       /* of persistence: compare_add bytes, swap as in the request; answered */
    SW_REC_SEND_PULL,   /* where the payload is in the client: a list of struct ibv_sge in the
                          bounce area; answered */
    SW_REC_SEND_WHOLE,  /* payload in this record, before `opcode`, and the next ones;
                          answered */
    SW_REC_BYE,         /* the client, an unreliable connection, begins a new life or none */
    SW_REC_SEND_PARTLY, /* as SEND_PLACED, but for runs that are in the bounce area: total_bytes of
                           struct sw_record_run, each with its bytes behind it */
};
enum sw_record_flags {
    SW_REC_IMM = 1,
    SW_REC_INV = 2,
    SW_REC_SOLICITED = 4,
    SW_REC_FIRST = 8,
    SW_REC_LAST = 16
};

struct sw_record {
    _Atomic uint32_t seq;
    uint8_t kind;
    uint8_t flags;
    uint8_t slots;      /* records this message takes in the ring */
    uint8_t verdict;    /* enum sw_verdict */
    uint32_t len_bytes; /* of the payload that comes with this record; for PLACED, PARTLY and
                           WRITE_IMM of the message */
    uint32_t imm;       /* as in the work request, or the key to invalidate; of ANSWER and DATA:
                           what `acknowledged` was before it */
    union {
        uint8_t payload[48];
        struct {
            uint64_t remote_addr;
            uint64_t compare_add; /* ANSWER to an atomic: the original value */
            uint64_t swap;
            uint32_t rkey;
            uint32_t total_bytes;
            uint32_t bounce_at;  /* offset in the area */
            uint32_t bounce_end; /* position of the area's end after this piece */
            uint8_t opcode;      /* of the work request */
            uint8_t rnr_retry;
            uint8_t pad[2];
            uint32_t srq_num; /* that an XRC request is for */
        };
    };
};
static_assert(sizeof(struct sw_record) == 64 && offsetof(struct sw_record, payload) == 16,
              "shared layout");

/* Bytes of a message that the client could not place. They follow at once. */
struct sw_record_run {
    uint32_t at; /* in the message */
    uint32_t len_bytes;
};

/* A continuation record: its seq is its position, so that it can never be taken for a record. */
struct sw_record_more {
    _Atomic uint32_t seq;
    uint8_t payload[60];
};
static_assert(sizeof(struct sw_record_more) == 64, "shared layout");

#define SW_RECORD_SLOTS_MAX 4u
#define SW_MORE_BYTES 60u
#define SW_INLINE_FIRST 48u /* bytes in the first record of a SEND_INLINE, and of a SEND_WHOLE */
#define SW_WHOLE_FIRST 40u
#define SW_INLINE_BYTES (SW_INLINE_FIRST + (SW_RECORD_SLOTS_MAX - 1u) * SW_MORE_BYTES)
#define SW_WHOLE_BYTES (SW_WHOLE_FIRST + (SW_RECORD_SLOTS_MAX - 1u) * SW_MORE_BYTES)
static_assert(offsetof(struct sw_record, payload) + SW_WHOLE_FIRST ==
                  offsetof(struct sw_record, opcode),
              "shared layout");

/* Records that a message of so many bytes takes. */
static inline uint32_t sw_record_slots(uint32_t len_bytes, uint32_t first_bytes)
{
    return len_bytes <= first_bytes
               ? 1
               : 1 + (len_bytes - first_bytes + SW_MORE_BYTES - 1) / SW_MORE_BYTES;
}

/* What the client's requests have moved, for both ends' counters: to the owner, and from it. */
enum { SW_MOVED_OUT, SW_MOVED_IN };
struct sw_moved {
    _Atomic uint64_t bytes, packets;
};

struct sw_block {
    /* Odd while the client's QP is inside an access section. It goes on from tenancy to tenancy, so
     * that a QP of an earlier one, which knows an older count, cannot get in. */
    _Alignas(64) _Atomic uint32_t access_seq;
    _Atomic uint32_t lost;     /* unreliable messages that found no receive or had a bad key */
    _Atomic uint32_t can_pull; /* 1: the client can read any memory of the owner (cma) */
    /* Upper half: life of the owner's QP that reads the block; the owner writes it; 0: nobody's.
     * Lower: life of the client's QP that writes it; 0: none yet. One word, so that a client who
     * comes late never claims the block of somebody else. */
    _Atomic uint64_t tenancy;
    struct sw_moved moved[2];
    /* What the client has consumed of the owner's rings: positions. */
    _Alignas(64) _Atomic uint32_t requests_consumed;
    _Atomic uint32_t request_bounce_consumed;
    _Atomic uint32_t responses_consumed;
    _Atomic uint32_t response_bounce_consumed;
    /* The client sleeps until the owner's QP has posted so many receives. It is to be rung then. */
    _Alignas(64) _Atomic uint32_t awaits_posted;
    /* How many of the owner's requests the client has done of which nothing else is to be said. A
     * word, as each record is a line more that both have to fetch. */
    _Alignas(64) _Atomic uint32_t acknowledged;
    _Alignas(4096) struct sw_record requests[SW_REQUEST_SLOTS];
    struct sw_record responses[SW_RESPONSE_SLOTS];
    uint8_t request_bounce[SW_REQUEST_BOUNCE];
    uint8_t response_bounce[SW_RESPONSE_BOUNCE];
};
static_assert(offsetof(struct sw_block, requests_consumed) == 64, "shared layout");
static_assert(offsetof(struct sw_block, requests) == 4096, "shared layout");
static_assert(sizeof(struct sw_block) <= SW_BLOCK_BYTES, "shared layout");

static inline uint32_t sw_block_reader(const struct sw_block *block)
{
    return (uint32_t)(atomic_load(&block->tenancy) >> 32);
}

static inline uint32_t sw_block_writer(const struct sw_block *block)
{
    return (uint32_t)atomic_load(&block->tenancy);
}

/*
 * Datagrams: one ring for all the client's UD QPs towards all of the owner's. A record takes a run
 * of 64-byte units that does not wrap (a SKIP record fills the end of the ring). Positions count
 * units and run freely. Like other records they are valid when their `seq` equals their position
 * + 1, which the reader polls. Old bytes of a ring could look like that, so the client writes
 * another value into the unit behind a record before it makes the record valid.
 */
#define SW_DATAGRAM_UNIT 64u
#define SW_DATAGRAM_UNITS (1u << 14) /* of the ring */
#define SW_DATAGRAM_BYTES 4096u      /* bytes of a message: the largest path MTU */

enum sw_datagram_flags {
    SW_DATAGRAM_IMM = 1,
    SW_DATAGRAM_SOLICITED = 2,
    SW_DATAGRAM_SKIP = 4, /* no message: `size` units are skipped */
    SW_DATAGRAM_FLAGS = 7
};

/* In one cache line, so that a message of 64 bytes takes two. */
struct sw_datagram_record {
    _Atomic uint32_t seq;
    uint16_t size; /* bytes of the payload */
    uint8_t flags;
    uint8_t sl;
    uint32_t dest_qpn; /* the multicast QPN: to all that are attached to the group in the GRH */
    uint32_t src_qpn;
    uint32_t qkey;
    uint32_t imm;
    uint8_t grh[40];
    uint8_t payload[];
};
static_assert(sizeof(struct sw_datagram_record) == SW_DATAGRAM_UNIT, "shared layout");
static_assert(SW_DATAGRAM_UNITS <= UINT16_MAX, "what is skipped");

/* What a record of so many bytes takes. */
static inline uint32_t sw_datagram_units(uint32_t size)
{
    return 1 + (size + SW_DATAGRAM_UNIT - 1) / SW_DATAGRAM_UNIT;
}

/* The first page; then the ring of datagrams, then the blocks. */
struct sw_inbox_header {
    uint64_t probe_write; /* the client writes it by process_vm_writev, then reads it here */
    uint64_t probe_read;  /* the owner's nonce: the client reads it by process_vm_readv */
    /* By the client, which writes it; the owner does not look at it but to find out of nonsense. */
    _Alignas(64) _Atomic uint32_t datagrams_produced;
    _Alignas(64) _Atomic uint32_t datagrams_consumed; /* by the owner, which writes it */
    /* The ring has been full for long: the owner's engine shall take what its program does not.
     * Set by the client, cleared by the owner. */
    _Alignas(64) _Atomic uint32_t datagrams_urgent;
};
static_assert(sizeof(struct sw_inbox_header) <= 4096, "shared layout");

#define SW_INBOX_DATAGRAMS 4096ull
#define SW_INBOX_FIRST_BLOCK (SW_INBOX_DATAGRAMS + (uint64_t)SW_DATAGRAM_UNITS * SW_DATAGRAM_UNIT)
#define SW_INBOX_BYTES (SW_INBOX_FIRST_BLOCK + (uint64_t)SW_INBOX_BLOCKS * SW_BLOCK_BYTES)
/* No smaller one is of use: 16 queue pairs with one peer. */
#define SW_INBOX_BYTES_MIN (SW_INBOX_FIRST_BLOCK + 16ull * SW_BLOCK_BYTES)

static inline uint8_t *sw_inbox_datagram(void *base, uint32_t position)
{
    return (uint8_t *)base + SW_INBOX_DATAGRAMS +
           (size_t)(position % SW_DATAGRAM_UNITS) * SW_DATAGRAM_UNIT;
}

static inline struct sw_datagram_record *sw_inbox_record(void *base, uint32_t position)
{
    return (struct sw_datagram_record *)sw_inbox_datagram(base, position);
}

static inline struct sw_block *sw_inbox_block(void *base, uint32_t index)
{
    return (struct sw_block *)((uint8_t *)base + SW_INBOX_FIRST_BLOCK +
                               (size_t)index * SW_BLOCK_BYTES);
}

/* In a file of this size, be it as a limit on files allows or as a peer says. */
static inline uint32_t sw_inbox_blocks(uint64_t len_bytes)
{
    if (len_bytes < SW_INBOX_BYTES_MIN)
        return 0;
    const uint64_t count = (len_bytes - SW_INBOX_FIRST_BLOCK) / SW_BLOCK_BYTES;
    return count < SW_INBOX_BLOCKS ? (uint32_t)count : SW_INBOX_BLOCKS;
}

#endif
