/* SPDX-License-Identifier: BSD-2-Clause */
/* The local side of a request in a send queue: its bytes, element by element, each key checked when
 * it is used. */
#ifndef SW_LINK_GATHER_H
#define SW_LINK_GATHER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/memory/mr_impl.h"
#include "device/memory/view.h"
#include "device/queue/qp_impl.h"

struct sw_gather {
    const struct ibv_sge *sges;
    uint32_t sge_count;
    const uint8_t *inline_bytes; /* instead of sges */
    uint32_t inline_len;
    uint32_t pd; /* that the keys must be of */
};
struct sw_gather sw_gather_of(struct sw_qp *qp, uint32_t position);

/* Where the bytes of a request of one element are that is not queued yet. NULL: its key does not
 * allow `need`. */
static inline uint8_t *sw_gather_local(const struct sw_qp *qp, const struct ibv_send_wr *wr,
                                       uint32_t need)
{
    uint8_t *local = (uint8_t *)(uintptr_t)wr->sg_list->addr;
    if (!(wr->send_flags & IBV_SEND_INLINE) &&
        !sw_sge_resolve(qp->pd_id, wr->sg_list, need, &local))
        return NULL;
    return local;
}

/* The same to be read; no inline_bytes: its key does not allow it. */
static inline struct sw_gather sw_gather_posted(const struct sw_qp *qp,
                                                const struct ibv_send_wr *wr)
{
    return (struct sw_gather){.inline_bytes = sw_gather_local(qp, wr, 0),
                              .inline_len = wr->sg_list->length};
}

/* Whether some of it is accessed by a view. */
static inline bool sw_gather_has_view(const struct sw_gather *gather)
{
    for (uint32_t i = 0; i < gather->sge_count; i++)
        if (sw_view_is_of(gather->sges[i].lkey))
            return true;
    return false;
}

/* A run of local bytes from `offset`, at most *len_bytes (shortened). NULL: a key does not allow
 * `need`. */
uint8_t *sw_gather_at(const struct sw_gather *gather, uint64_t offset, uint32_t need,
                      uint64_t *len_bytes);
/* Whether the keys allow to read the first len_bytes of it. */
bool sw_gather_allows(const struct sw_gather *gather, uint64_t len_bytes);
/* Copies local bytes from `offset`; false: a key does not allow it. */
bool sw_gather_out(const struct sw_gather *gather, uint64_t offset, uint8_t *to,
                   uint64_t len_bytes);
/* And the other way: bytes that came for the request go to `offset`. */
bool sw_gather_in(const struct sw_gather *gather, uint64_t offset, const uint8_t *from,
                  uint64_t len_bytes);

#endif
