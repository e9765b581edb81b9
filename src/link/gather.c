/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/gather.h"

#include "base/guarded_copy.h"

struct sw_gather sw_gather_of(struct sw_qp *qp, uint32_t position)
{
    const struct sw_wqe *wqe = sw_sq_at(&qp->sq, position);
    if (wqe->flags & SW_WQE_INLINE)
        return (struct sw_gather){.inline_bytes = sw_sq_inline(&qp->sq, position),
                                  .inline_len = wqe->len_bytes};
    return (struct sw_gather){
        .sges = sw_sq_sges(&qp->sq, position), .sge_count = wqe->sge_count, .pd = qp->pd_id};
}

uint8_t *sw_gather_at(const struct sw_gather *gather, uint64_t offset, uint32_t need,
                      uint64_t *len_bytes)
{
    if (gather->inline_bytes) {
        if (*len_bytes > gather->inline_len - offset)
            *len_bytes = gather->inline_len - offset;
        return (uint8_t *)gather->inline_bytes + offset;
    }
    for (uint32_t i = 0; i < gather->sge_count; i++) {
        const struct ibv_sge *sge = &gather->sges[i];
        if (offset >= sge->length) {
            offset -= sge->length;
            continue;
        }
        uint8_t *va;
        if (!sw_sge_resolve(gather->pd, sge, need, &va))
            return NULL;
        if (*len_bytes > sge->length - offset)
            *len_bytes = sge->length - offset;
        return va + offset;
    }
    return NULL;
}

bool sw_gather_allows(const struct sw_gather *gather, uint64_t len_bytes)
{
    for (uint64_t at = 0; at < len_bytes;) {
        uint64_t run = len_bytes - at;
        if (!sw_gather_at(gather, at, 0, &run))
            return false;
        at += run;
    }
    return true;
}

bool sw_gather_out(const struct sw_gather *gather, uint64_t offset, uint8_t *to, uint64_t len_bytes)
{
    while (len_bytes) {
        uint64_t run = len_bytes;
        const uint8_t *from = sw_gather_at(gather, offset, 0, &run);
        if (!from)
            return false;
        if (!sw_guarded_copy(to, from, run, from))
            return false;
        to += run;
        offset += run;
        len_bytes -= run;
    }
    return true;
}

bool sw_gather_in(const struct sw_gather *gather, uint64_t offset, const uint8_t *from,
                  uint64_t len_bytes)
{
    while (len_bytes) {
        uint64_t run = len_bytes;
        uint8_t *to = sw_gather_at(gather, offset, IBV_ACCESS_LOCAL_WRITE, &run);
        if (!to)
            return false;
        if (!sw_guarded_copy(to, from, run, to))
            return false;
        from += run;
        offset += run;
        len_bytes -= run;
    }
    return true;
}
