/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The public tables: what peers on this host may read of this process's NIC. One memfd, written
 * only by its owner, mapped read-only by peers (sealed against other writers). Layout is fixed by
 * the asserts below: both ends may be different builds of one version.
 *
 * Publication order: an entry's fields are written before its word (`key_word`, `bind_word`,
 * `posted`) with release; a reader loads the word with acquire, reads the fields, and while it uses
 * them it is inside an access section (link/direct/process/block.h), so the owner cannot recycle
 * the entry under it.
 */
#ifndef SW_DEVICE_RULES_PUB_H
#define SW_DEVICE_RULES_PUB_H

#include <assert.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A published field is written while readers may look at it; they look at the entry's word again
 * afterwards. */
#define SW_PUB_SET(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELAXED)
#define SW_PUB_GET(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

#define SW_PUB_MAGIC 0x31425550574953ull /* "SIWPUB1" */
#define SW_PUB_VERSION 11

#define SW_CACHELINE 64

/* QPN = slot (11 bits) | index (13 bits). Slot 0 holds the special QPNs, 2047 the multicast QPN:
 * neither is used. */
#define SW_SLOT_BITS 11
#define SW_QP_INDEX_BITS 13
#define SW_SLOT_MAX ((1u << SW_SLOT_BITS) - 2)
#define SW_MAX_QP (1u << SW_QP_INDEX_BITS)
#define SW_MAX_MR (1u << 16)
#define SW_MAX_CQ (1u << 13)
#define SW_MAX_SRQ (1u << 10)
#define SW_MR_EXTENTS 4

/* Which XRC domain, for all processes of the host: by inode, or random. Zero: none. */
struct sw_pub_domain {
    uint64_t id[2];
};

struct sw_pub_header {
    uint64_t magic;
    uint32_t version;
    uint32_t slot;
    uint64_t nonce; /* this incarnation of the slot */
    uint32_t pid;
    _Atomic uint32_t moving; /* 1 while pages of the range below move: memory/move_gate.h */
    _Atomic uint64_t moving_va, moving_end;
    _Atomic uint32_t mr_last; /* end of the latest region's block: blocks come in order (draw.h) */
    _Atomic uint32_t life;    /* held by the engine: base/robust.h */
    uint32_t pad[2];
};
static_assert(sizeof(struct sw_pub_header) == 64, "shared layout");

/* A part of a region that peers can map: bytes [va, va+len) are at `file_offset` of segment
 * `segment`. */
struct sw_pub_extent {
    uint64_t va;
    uint64_t len_bytes;
    uint64_t file_offset;
    uint32_t segment;
    uint32_t pad;
};

enum sw_pub_mr_kind {
    SW_PUB_REGION,
    SW_PUB_WINDOW_1,
    SW_PUB_WINDOW_2, /* the only kind that may be invalidated by a SEND */
    SW_PUB_NULL,     /* no memory: reads as zeros, forgets what is written; local use only */
};

/* Beside the IBV_ACCESS_* of an entry: its key may be used in local elements. */
#define SW_PUB_LOCAL_USE (1u << 31)
#define SW_PUB_STEADY (1u << 30) /* for its owner: it has no view (device/memory/view.h) */

/* One memory region or window. key_word: generation << 32 | key; 0 while not valid. Peers address
 * it by iova. */
/*
 * What peers may map: nothing of a region that only this process uses; to read, where they may
 * READ; to write, where they may WRITE or do atomics, and where a receive has been posted, since
 * who sends places the message itself. A segment is handed out as the strongest of its regions.
 */
enum sw_handed_out { SW_HANDED_OUT_NOT, SW_HANDED_OUT_READ, SW_HANDED_OUT_WRITE };

static inline enum sw_handed_out sw_handed_out_for(uint32_t access)
{
    if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC))
        return SW_HANDED_OUT_WRITE;
    return access & IBV_ACCESS_REMOTE_READ ? SW_HANDED_OUT_READ : SW_HANDED_OUT_NOT;
}

struct sw_pub_mr {
    _Atomic uint64_t key_word;
    uint32_t access; /* IBV_ACCESS_*, SW_PUB_LOCAL_USE */
    uint32_t pd;
    uint64_t iova;
    uint64_t len_bytes;
    uint64_t va;
    uint32_t extent_count;
    uint32_t kind;           /* enum sw_pub_mr_kind */
    uint32_t qpn;            /* the only QP it may be used through; 0: any of the PD */
    uint32_t persist;        /* sw_persist_word(), for its owner; with FLUSH_PERSISTENT */
    uint32_t key_before;     /* of its owner: the last key that was drawn for this entry */
    _Atomic uint32_t handed; /* enum sw_handed_out: how peers may map it; it only grows */
    struct sw_pub_extent extents[SW_MR_EXTENTS];
};
static_assert(sizeof(struct sw_pub_extent) == 32, "shared layout");
static_assert(offsetof(struct sw_pub_mr, extents) == 64 && sizeof(struct sw_pub_mr) == 192,
              "shared layout");

/* Instead of a state in bind_word: the entry is being written, it will be another in a moment. */
#define SW_PUB_CHANGING 255u

/*
 * One queue pair. bind_word: generation << 32 | state; it changes whenever any field of the first
 * line changes, so a peer that has seen the word may keep what it derived from the line. rq_len_min
 * is the exception: it is read each time.
 */
struct sw_pub_qp {
    _Atomic uint64_t bind_word;
    uint32_t qpn;
    uint32_t dest_qpn;
    uint32_t access; /* IBV_ACCESS_REMOTE_* the QP admits */
    uint32_t pd;
    uint32_t block; /* of the peer in this process's inbox from it */
    uint32_t recv_cq;
    uint64_t rq_offset;  /* of the receive ring in the tables' memory */
    uint32_t rq_entries; /* power of two; 0: shared receive queue */
    uint32_t rq_stride_bytes;
    _Atomic uint32_t rq_len_min_bytes; /* no posted receive is shorter or has a bad key */
    uint8_t min_rnr_timer;
    uint8_t max_dest_rd_atomic;
    uint8_t type;     /* enum ibv_qp_type */
    uint8_t in_order; /* WRITEs to it are made in order: sw_qp_keep_order() */
    uint32_t send_cq;

    _Alignas(
        SW_CACHELINE) _Atomic uint32_t rq_posted; /* receives ever posted since the QP left RESET */
    uint32_t rq_base;            /* receives used before this connection; with the entry */
    struct sw_pub_domain domain; /* of an XRC target QP */
    uint32_t pad2[10];
};
static_assert(offsetof(struct sw_pub_qp, rq_posted) == 64 && sizeof(struct sw_pub_qp) == 128,
              "shared layout");

/* One completion queue: 0 not armed, or an enum sw_cq_armed. */
enum sw_cq_armed { SW_CQ_DISARMED, SW_CQ_ARMED_ANY, SW_CQ_ARMED_SOLICITED };

/* Whether a CQ that is armed so has an event for a completion that was solicited, or was not. */
static inline bool sw_cq_is_armed_for(uint32_t armed, bool solicited)
{
    return armed == SW_CQ_ARMED_ANY || (armed == SW_CQ_ARMED_SOLICITED && solicited);
}
struct sw_pub_cq {
    _Alignas(SW_CACHELINE) _Atomic uint32_t armed;
    uint32_t pad[15];
};
static_assert(sizeof(struct sw_pub_cq) == 64, "shared layout");

/* A shared receive queue of an XRC domain. word: generation << 32 | number; 0 while there is none.
 */
struct sw_pub_srq {
    _Atomic uint64_t word;
    uint32_t generation;
    uint32_t pd;
    uint32_t cq; /* of its completions */
    uint32_t pad[3];
    struct sw_pub_domain domain;
};
static_assert(sizeof(struct sw_pub_srq) == 48, "shared layout");

/* A posted receive in a ring: header, then the scatter list. */
struct sw_pub_recv {
    uint32_t sge_count;
    uint32_t len_bytes; /* of all */
    uint64_t pad;
    struct ibv_sge sges[];
};
static_assert(sizeof(struct ibv_sge) == 16 && sizeof(struct sw_pub_recv) == 16, "shared layout");

#define SW_PUB_RQ_BYTES (256ull << 20)
#define SW_PUB_RQ_BYTES_MIN (1ull << 20)
struct sw_pub {
    struct sw_pub_header header;
    uint8_t pad[4096 - sizeof(struct sw_pub_header)];
    struct sw_pub_qp qps[SW_MAX_QP];
    struct sw_pub_cq cqs[SW_MAX_CQ];
    struct sw_pub_srq srqs[SW_MAX_SRQ];
    struct sw_pub_mr mrs[SW_MAX_MR];
    uint8_t rq_arena[SW_PUB_RQ_BYTES]; /* or less, where a limit on files does not allow more */
};
#define SW_PUB_BYTES_MIN (offsetof(struct sw_pub, rq_arena) + SW_PUB_RQ_BYTES_MIN)
static_assert(offsetof(struct sw_pub, qps) == 4096 && offsetof(struct sw_pub, mrs) % 4096 == 0,
              "shared layout");

/* How much of tables in a file of this size counts. */
static inline uint64_t sw_pub_bytes(uint64_t file_bytes)
{
    return file_bytes < sizeof(struct sw_pub) ? file_bytes : sizeof(struct sw_pub);
}

static inline uint32_t sw_qpn_make(uint32_t slot, uint32_t index)
{
    return slot << SW_QP_INDEX_BITS | index;
}
static inline uint32_t sw_qpn_slot(uint32_t qpn)
{
    return qpn >> SW_QP_INDEX_BITS & ((1u << SW_SLOT_BITS) - 1);
}
static inline uint32_t sw_qpn_index(uint32_t qpn)
{
    return qpn & (SW_MAX_QP - 1);
}
static inline uint32_t sw_srq_index(uint32_t srq_num) /* numbers are made as QPNs are */
{
    return srq_num & (SW_MAX_SRQ - 1);
}
/* A key names its entry by its middle 16 bits. The other ones nobody can foresee; the low 8 of a
 * window's the program may choose (IBTA Vol1 10.6.7.2.2). */
static inline uint32_t sw_key_make(uint32_t index, uint32_t random)
{
    return (random & 0xff0000ff) | index << 8;
}
static inline uint32_t sw_key_index(uint32_t key)
{
    return key >> 8 & (SW_MAX_MR - 1);
}

#endif
