/* SPDX-License-Identifier: BSD-2-Clause */
/* What a responder asks for (transport/), in the terms of device/serve/. */
#ifndef SW_DEVICE_SERVE_DEMAND_H
#define SW_DEVICE_SERVE_DEMAND_H

#include "device/queue/qp_impl.h"
#include "device/rules/target.h"
#include "device/serve/execute.h"
#include "wire/packet.h"

static inline struct sw_inbound sw_demand_inbound(const struct sw_qp *qp,
                                                  const struct sw_demand *demand)
{
    return (struct sw_inbound){
        .pd = qp->pd_id,
        .imm = demand->has_inv ? demand->inv_rkey : demand->imm_be,
        .has_imm = demand->has_imm,
        .has_inv = demand->has_inv,
        .is_solicited = demand->solicited,
    };
}

static inline struct sw_target_flush sw_demand_flush(const struct sw_demand *demand)
{
    return (struct sw_target_flush){
        .addr = demand->addr,
        .len_bytes = demand->total,
        .key = demand->rkey,
        .type = demand->flush_type & (SW_FLUSH_VISIBLE | SW_FLUSH_PERSISTENT),
        .whole_region = demand->flush_type & SW_FLUSH_REGION,
    };
}

/* Executes an atomic, or an ATOMIC WRITE; *original is the word before. */
static inline enum sw_verdict sw_demand_atomic(struct sw_qp *qp, const struct sw_demand *demand,
                                               const struct sw_inbound *message, uint64_t *original)
{
    const uint8_t opcode = demand->kind == SW_DEMAND_CMP_SWAP    ? IBV_WR_ATOMIC_CMP_AND_SWP
                           : demand->kind == SW_DEMAND_FETCH_ADD ? IBV_WR_ATOMIC_FETCH_AND_ADD
                                                                 : IBV_WR_ATOMIC_WRITE;
    return sw_execute_atomic(qp, message, opcode, demand->rkey, demand->addr, demand->compare_add,
                             demand->swap, original);
}

#endif
