/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The bytes of a short message in records of the request ring: `first_bytes` of it in the record
 * itself, the rest in those behind it (struct sw_record_more).
 */
#ifndef SW_LINK_DIRECT_BIND_RECORD_PAYLOAD_H
#define SW_LINK_DIRECT_BIND_RECORD_PAYLOAD_H

#include "base/fault.h"
#include "base/minmax.h"
#include "base/payload.h"
#include "link/direct/bind/connection.h"
#include "link/direct/process/block.h"
#include "link/gather.h"

static inline void sw_record_store(struct sw_direct_qp *d, struct sw_record *record,
                                   const uint8_t *from, uint32_t len_bytes, uint32_t first_bytes)
{
    uint32_t at = first_bytes, index = d->send.request_at + 1;
    sw_payload_copy(record->payload, from, sw_min_u32(len_bytes, first_bytes));
    for (; at < len_bytes; index++, at += SW_MORE_BYTES) {
        struct sw_record_more *more =
            (struct sw_record_more *)&d->tx->requests[index % SW_REQUEST_SLOTS];
        sw_payload_copy(more->payload, from + at, sw_min_u32(len_bytes - at, SW_MORE_BYTES));
        /* Its position, not one more: never taken for a record, in no round of the ring. */
        atomic_store_explicit(&more->seq, index, memory_order_relaxed);
    }
}

/* Sender: a whole message, which lies in one place, into a record that was reserved, and the ones
 * behind it. false: that was lost meanwhile. */
static inline bool sw_record_put(struct sw_direct_qp *d, struct sw_record *record,
                                 const uint8_t *from, uint32_t len_bytes, uint32_t first_bytes)
{
    for (int i = 0; i < SW_FAULT_TRIES; i++) {
        const uint64_t mark = sw_fault_mark();
        sw_record_store(d, record, from, len_bytes, first_bytes);
        const enum sw_fault fault = sw_fault_judge(mark, from, len_bytes);
        if (__builtin_expect(fault != SW_FAULT_AGAIN, 1))
            return fault == SW_FAULT_NONE;
    }
    return false;
}

/* The same of one of several elements. false: a key does not allow it. */
bool sw_record_join(struct sw_direct_qp *d, struct sw_record *record,
                    const struct sw_gather *gather, uint32_t len_bytes, uint32_t first_bytes);

/* The same wherever it lies. */
static inline bool sw_record_fill(struct sw_direct_qp *d, struct sw_record *record,
                                  const struct sw_gather *gather, uint32_t len_bytes,
                                  uint32_t first_bytes)
{
    if (gather->inline_bytes && len_bytes <= gather->inline_len)
        return sw_record_put(d, record, gather->inline_bytes, len_bytes, first_bytes);
    return sw_record_join(d, record, gather, len_bytes, first_bytes);
}

/* Target: a part of the message at `serve.at`: the one in its first record, or in one behind it. */
static inline const uint8_t *sw_record_part(const struct sw_direct_qp *d, uint32_t index)
{
    const struct sw_record *slot = &d->rx->requests[(d->serve.at + index) % SW_REQUEST_SLOTS];
    return index ? ((const struct sw_record_more *)slot)->payload : slot->payload;
}

/* Target: the message at `serve.at` to one place. False: that was lost meanwhile. */
static inline __attribute__((always_inline)) bool
sw_record_copy(const struct sw_direct_qp *d, uint8_t *to, uint32_t len_bytes, uint32_t first_bytes)
{
    const uint64_t mark = sw_fault_mark();
    uint32_t piece = sw_min_u32(len_bytes, first_bytes);
    for (uint32_t at = 0, index = 0; at < len_bytes; at += piece, index++) {
        if (index)
            piece = sw_min_u32(len_bytes - at, SW_MORE_BYTES);
        sw_payload_copy(to + at, sw_record_part(d, index), piece);
    }
    return sw_fault_judge(mark, to, len_bytes) == SW_FAULT_NONE;
}

/* Target: the message at `serve.at` into the receive that was taken for it. IBV_WC_SUCCESS,
 * IBV_WC_LOC_LEN_ERR or IBV_WC_LOC_PROT_ERR. */
enum ibv_wc_status sw_record_scatter(const struct sw_direct_qp *d, uint32_t len_bytes,
                                     uint32_t first_bytes);

#endif
