/* SPDX-License-Identifier: BSD-2-Clause */
/* Pairs of blocks, joined and cut into requests of the device. No I/O; memory only when made. */
#ifndef SW_MOVERS_TRANSFER_PLAN_H
#define SW_MOVERS_TRANSFER_PLAN_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

enum { XFC_REQUEST_BYTES_MAX = 1 << 20, XFC_PIECES_MAX = 8 };

struct xfc_request {
    uint64_t remote;
    uint32_t key, bytes;
    uint32_t first_piece, pieces;
    /* Of the plan's blocks: so many are in place, and so many touched, once this and all before it
     * are done. They differ inside a block that was cut. */
    uint32_t blocks_done, blocks_begun;
};

struct xfc_plan {
    struct xfc_request *requests;
    struct ibv_sge *pieces;
    uint32_t requests_count, requests_max; /* there is room for as many pieces as requests */
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

bool xfc_plan_make(struct xfc_plan *plan, uint32_t requests_max, uint32_t pieces_per_request);
void xfc_plan_free(struct xfc_plan *plan);
void xfc_plan_clear(struct xfc_plan *plan);
/* The plan has room, and the pair at least one byte. */
void xfc_plan_add(struct xfc_plan *plan, const struct xfc_pair *pair);

#endif
