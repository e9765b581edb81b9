/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The bytes of a short message in records of the request ring: `first_bytes` of it in the record
 * itself, the rest in those behind it (struct sw_record_more).
 */
#ifndef SW_LINK_DIRECT_BIND_RECORD_PAYLOAD_H
#define SW_LINK_DIRECT_BIND_RECORD_PAYLOAD_H

#include "link/direct/process/block.h"
#include "link/gather.h"

struct sw_direct_qp;

/* Sender: a whole message into a record that was reserved, and the ones behind it. false: a key
 * does not allow it. */
bool sw_record_fill(struct sw_direct_qp *d, struct sw_record *record,
                    const struct sw_gather *gather, uint32_t len_bytes, uint32_t first_bytes);

/* Target: the message at `serve.at` to one place. False: that was lost meanwhile. */
bool sw_record_copy(const struct sw_direct_qp *d, uint8_t *to, uint32_t len_bytes,
                    uint32_t first_bytes);

/* Target: the message at `serve.at` into the receive that was taken for it. IBV_WC_SUCCESS,
 * IBV_WC_LOC_LEN_ERR or IBV_WC_LOC_PROT_ERR. */
enum ibv_wc_status sw_record_scatter(const struct sw_direct_qp *d, uint32_t len_bytes,
                                     uint32_t first_bytes);

#endif
