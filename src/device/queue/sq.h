/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A send queue: the requests a program posted, until their completions are polled. Positions run
 * freely; guarded by qp->lock but for `polled`.
 *
 *   polled <= head <= next <= tail
 *  - [polled, head)  completed, their slots still held, as on hardware, until a later completion is
 *    polled
 *  - [head, next)    sent to the target, answer outstanding
 *  - [next, tail)    waiting
 */
#ifndef SW_DEVICE_QUEUE_SQ_H
#define SW_DEVICE_QUEUE_SQ_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/queue/ah.h"
#include "device/rules/pub.h"
#include "device/rules/target.h"

struct sw_pd;
struct sw_qp;

enum sw_wqe_flags {
    SW_WQE_SIGNALED = 1,
    SW_WQE_FENCE = 2,
    SW_WQE_SOLICITED = 4,
    SW_WQE_INLINE = 8
};
enum sw_wqe_state { SW_WQE_WAITING, SW_WQE_SENT, SW_WQE_DONE };

struct sw_wqe {
    uint64_t wr_id;
    uint64_t remote_addr;
    uint64_t compare_add;
    uint64_t swap;
    uint32_t rkey;
    uint32_t imm; /* or the key to invalidate; as given, network byte order for immediates */
    uint32_t len_bytes;
    uint32_t done_bytes;
    uint8_t opcode; /* enum ibv_wr_opcode */
    uint8_t flags;
    uint8_t sge_count;
    uint8_t state;
    uint8_t via_ring;     /* the target executes it: pieces may be on their way */
    uint8_t is_announced; /* the peer was woken for what is left of it */
    uint8_t pad[2];
    uint32_t srq_num; /* XRC: of the target's SRQ */
    uint8_t pad1[4];
};
static_assert(sizeof(struct sw_wqe) == 64, "one cache line");

/* Whether it ends in a receive of the peer's. */
static inline bool sw_wqe_takes_receive(const struct sw_wqe *wqe)
{
    return wqe->opcode == IBV_WR_SEND || wqe->opcode == IBV_WR_SEND_WITH_IMM ||
           wqe->opcode == IBV_WR_SEND_WITH_INV || wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* A FLUSH, for which struct ibv_send_wr has no place. */
struct sw_flush_wr {
    uint64_t wr_id;
    unsigned int send_flags;
    uint32_t rkey;
    uint64_t remote_addr;
    uint64_t len_bytes;
    uint8_t type;  /* IBV_FLUSH_GLOBAL, IBV_FLUSH_PERSISTENT */
    uint8_t level; /* IBV_FLUSH_RANGE or IBV_FLUSH_MR */
};

/* Where a datagram goes. */
struct sw_route {
    struct sw_path path;
    uint32_t pd_id; /* of the handle */
    uint32_t dest_qpn;
    uint32_t qkey; /* as given: the high bit asks for the sending QP's own */
    bool is_local; /* the address is of this host */
    bool is_set;
};

struct sw_sq {
    struct sw_wqe *wqes;
    struct ibv_sge *sges;    /* sge_max for each position */
    struct sw_route *routes; /* one for each position; NULL where all goes to one peer */
    uint8_t *inline_bytes;   /* inline_max for each position */
    uint32_t mask;
    uint32_t wr_max;
    uint32_t sge_max;
    uint32_t inline_max;
    bool sig_all;
    bool is_paced;    /* there is a rate limit */
    bool names_srq;   /* each request, of an XRC initiator */
    uint32_t opcodes; /* that may be posted: qp_type.h */
    uint32_t head, next, tail;
    uint32_t batch_start; /* tail when the builder began */
    int batch_error;
    _Alignas(SW_CACHELINE) _Atomic uint32_t polled; /* written by pollers */
};

static inline struct sw_wqe *sw_sq_at(struct sw_sq *sq, uint32_t position)
{
    return &sq->wqes[position & sq->mask];
}
static inline struct ibv_sge *sw_sq_sges(struct sw_sq *sq, uint32_t position)
{
    return &sq->sges[(size_t)(position & sq->mask) * sq->sge_max];
}
static inline struct sw_route *sw_sq_route(struct sw_sq *sq, uint32_t position)
{
    return &sq->routes[position & sq->mask];
}
static inline uint8_t *sw_sq_inline(struct sw_sq *sq, uint32_t position)
{
    return &sq->inline_bytes[(size_t)(position & sq->mask) * sq->inline_max];
}

/* Whether parts of the first request that waits were sent. */
static inline bool sw_sq_has_begun(struct sw_sq *sq)
{
    const struct sw_wqe *wqe = sw_sq_at(sq, sq->next);
    return sq->next != sq->tail && (wqe->done_bytes || wqe->via_ring);
}

/* Whether nothing is under way. */
static inline bool sw_sq_is_drained(struct sw_sq *sq)
{
    return sq->head == sq->next && !sw_sq_has_begun(sq);
}

/* How many requests may still be appended. */
static inline uint32_t sw_sq_room(struct sw_sq *sq)
{
    return sq->wr_max - (sq->tail - atomic_load_explicit(&sq->polled, memory_order_acquire));
}

static inline bool sw_sq_is_full(struct sw_sq *sq)
{
    return sw_sq_room(sq) == 0;
}

/* A request this short is worth executing before its bookkeeping, or without. Longer ones are
 * copied for so long that nobody would notice. */
#define SW_SKIP_BYTES 65536u
#define SW_SKIP_OPCODES                                                     \
    (1u << IBV_WR_RDMA_WRITE | 1u << IBV_WR_RDMA_READ | 1u << IBV_WR_SEND | \
     1u << IBV_WR_SEND_WITH_IMM)

/* Whether a request that was not appended yet may be executed at once, if nothing is before it. */
static inline bool sw_sq_may_skip(const struct sw_sq *sq, const struct ibv_send_wr *wr)
{
    if (wr->opcode >= 32 || !(sq->opcodes & SW_SKIP_OPCODES & 1u << wr->opcode) || wr->num_sge != 1)
        return false;
    const uint32_t len_bytes = wr->sg_list->length;
    const bool fits = !(wr->send_flags & IBV_SEND_INLINE) ||
                      (len_bytes <= sq->inline_max && wr->opcode != IBV_WR_RDMA_READ);
    return fits && len_bytes - 1 < SW_SKIP_BYTES;
}

/* Whether a request concerns only this process: a bind or an invalidate. */
static inline bool sw_wqe_is_local(const struct sw_wqe *wqe)
{
    return wqe->opcode == IBV_WR_BIND_MW || wqe->opcode == IBV_WR_LOCAL_INV;
}

int sw_sq_init(struct sw_sq *sq, struct sw_pd *pd, struct ibv_qp_cap *cap, bool sig_all,
               uint32_t opcodes);
/* Gives each request a route. */
int sw_sq_init_routes(struct sw_sq *sq);
void sw_sq_fini(struct sw_sq *sq);
void sw_sq_reset(struct sw_sq *sq);
/* Nothing of what was begun has been executed: all that is not complete begins anew. */
void sw_sq_rewind(struct sw_sq *sq);

/* Copies a request into the queue. 0, -ENOMEM (full), -EINVAL (opcode, elements, inline size),
 * -EOPNOTSUPP. */
int sw_sq_append(struct sw_sq *sq, const struct ibv_send_wr *wr);
/* Appends a request that was executed, or sent to the target: sw_sq_may_skip(), there is room, and
 * nothing before it waits. */
void sw_sq_append_executed(struct sw_sq *sq, const struct ibv_send_wr *wr, enum sw_wqe_state state);
/* The same of `count` requests that were executed, if nothing else is in the queue: they are
 * completed, and nothing remembers them. Returns the rest of the list. */
struct ibv_send_wr *sw_sq_complete_executed(struct sw_qp *qp, struct ibv_send_wr *wr,
                                            uint32_t count);
/* The same for a FLUSH. -ENOMEM, -EINVAL (type, level, length). */
int sw_sq_append_flush(struct sw_sq *sq, const struct sw_flush_wr *wr);
/* What a FLUSH in the queue asks for. */
struct sw_target_flush sw_wqe_flush(const struct sw_wqe *wqe);

/* Gives the request at `position` its destination; ah NULL: none yet. */
void sw_sq_set_route(struct sw_sq *sq, uint32_t position, struct ibv_ah *ah, uint32_t dest_qpn,
                     uint32_t qkey);
/* Whether all requests from `position` on know where they go. */
bool sw_sq_is_routed(struct sw_sq *sq, uint32_t position);

/* Completes the request at `head` and moves head past it. */
void sw_sq_retire(struct sw_qp *qp, enum ibv_wc_status status);

/* Retires up to `count` successful requests from head with one lock of the CQ. */
void sw_sq_retire_run(struct sw_qp *qp, uint32_t count);

#endif
