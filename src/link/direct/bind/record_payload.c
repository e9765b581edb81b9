/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/bind/record_payload.h"

#include "device/memory/mr_impl.h"

bool sw_record_join(struct sw_direct_qp *d, struct sw_record *record,
                    const struct sw_gather *gather, uint32_t len_bytes, uint32_t first_bytes)
{
    if (!len_bytes)
        return true;
    uint64_t run = len_bytes;
    uint8_t joined[SW_INLINE_BYTES];
    const uint8_t *from = sw_gather_at(gather, 0, 0, &run);
    if (from && run < len_bytes)
        from = sw_gather_out(gather, 0, joined, len_bytes) ? joined : NULL;
    return from && sw_record_put(d, record, from, len_bytes, first_bytes);
}

/* To the first element of a receive. False: left to sw_record_scatter(), which finds out why. */
static bool copy_to_first(const struct sw_direct_qp *d, const struct sw_recv_claim *claim,
                          uint32_t len_bytes, uint32_t first_bytes)
{
    uint8_t *to;
    if (!claim->sge_count || len_bytes > claim->sges[0].length ||
        !sw_sge_resolve(claim->pd, claim->sges, IBV_ACCESS_LOCAL_WRITE, &to))
        return false;
    return sw_record_copy(d, to, len_bytes, first_bytes);
}

enum ibv_wc_status sw_record_scatter(const struct sw_direct_qp *d, uint32_t len_bytes,
                                     uint32_t first_bytes)
{
    const struct sw_recv_claim *claim = &d->serve.receive.claim;
    uint32_t at = sw_min_u32(len_bytes, first_bytes);
    if (__builtin_expect(copy_to_first(d, claim, len_bytes, first_bytes), 1))
        return IBV_WC_SUCCESS;
    enum ibv_wc_status status =
        sw_recv_scatter(claim->pd, claim->sges, claim->sge_count, 0, sw_record_part(d, 0), at);
    for (uint32_t index = 1; at < len_bytes && status == IBV_WC_SUCCESS;
         at += SW_MORE_BYTES, index++)
        status =
            sw_recv_scatter(claim->pd, claim->sges, claim->sge_count, at, sw_record_part(d, index),
                            sw_min_u32(len_bytes - at, SW_MORE_BYTES));
    return status;
}
