/* SPDX-License-Identifier: BSD-2-Clause */
/* Pairs of blocks, joined and cut into requests of the device. No I/O; memory only when made. */
#ifndef SW_MOVERS_TRANSFER_PLAN_H
#define SW_MOVERS_TRANSFER_PLAN_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "sidewire/transfer.h"

enum { XFC_REQUEST_BYTES_MAX = 1 << 20, XFC_PIECES_MAX = 8, XFC_SUMS_PER_MESSAGE = 64 };

struct xfc_request {
    uint64_t remote;
    uint32_t key, bytes;
    uint32_t first_piece, pieces;
    /* So many blocks of the plan are in place, and so many touched, once this and all before it are
     * done. They differ inside a block that was cut. */
    uint32_t blocks_done, blocks_begun;
};

/* The state of a request. STRANDED has the number of its lane added to it. */
enum xfc_state { XFC_WAITS, XFC_GIVEN, XFC_IN_PLACE, XFC_LOST, XFC_STRANDED };

/* A block, or a part of one that is longer than a request, whose sums are compared. */
struct xfc_sum {
    uint64_t local, remote;
    uint32_t key, bytes, block;
    bool is_last; /* of its block */
};

enum xfc_mark { XFC_UNKNOWN, XFC_ALIKE, XFC_DIFFERS };

struct xfc_plan {
    struct xfc_request *requests;
    struct ibv_sge *pieces;
    uint8_t *states;      /* enum xfc_state of each request */
    struct xfc_sum *sums; /* NULL: none are compared */
    uint8_t *marks;       /* enum xfc_mark of each block, where there are sums */
    uint32_t sums_count;
    uint32_t requests_count, requests_max; /* there is room for as much of each of the others */
    uint32_t pieces_count, pieces_per_request;
    uint32_t blocks;
    uint64_t bytes;
};

struct xfc_pair {
    uint64_t local, remote, bytes;
    uint32_t local_key, remote_key;
};

/* How many requests a block of so many bytes can become. */
static inline uint64_t xfc_requests_of(uint64_t bytes)
{
    return (bytes + XFC_REQUEST_BYTES_MAX - 1) / XFC_REQUEST_BYTES_MAX;
}

bool xfc_plan_make(struct xfc_plan *plan, uint32_t requests_max, uint32_t pieces_per_request,
                   bool has_sums);
void xfc_plan_free(struct xfc_plan *plan);
void xfc_plan_clear(struct xfc_plan *plan);
/* The plan has room, and the pair at least one byte. */
void xfc_plan_add(struct xfc_plan *plan, const struct xfc_pair *pair);
/* None of it was given, and no block compared. */
void xfc_plan_restart(struct xfc_plan *plan);
/* Marks the block of that sum. False: it differs. */
bool xfc_plan_mark(struct xfc_plan *plan, uint32_t sum, bool is_alike);
/* The state of a block, in the order in which they were added: how far all its requests are. */
enum sw_xfer_block_state xfc_plan_block(const struct xfc_plan *plan, uint32_t block);
/* How many blocks are in place. */
uint32_t xfc_plan_blocks_done(const struct xfc_plan *plan);

#endif
