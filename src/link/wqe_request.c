/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/wqe_request.h"

#include <infiniband/verbs.h>
#include <sidewire/flush.h>

#include "device/memory/mr_impl.h"
#include "device/queue/qp_impl.h"
#include "link/gather.h"
#include "wire/packet.h"

static uint8_t wqe_request_kind_of(const struct sw_wqe *wqe)
{
    static const uint8_t kinds[] = {
        [IBV_WR_RDMA_WRITE] = SW_REQUEST_WRITE,
        [IBV_WR_RDMA_WRITE_WITH_IMM] = SW_REQUEST_WRITE,
        [IBV_WR_SEND] = SW_REQUEST_SEND,
        [IBV_WR_SEND_WITH_IMM] = SW_REQUEST_SEND,
        [IBV_WR_SEND_WITH_INV] = SW_REQUEST_SEND,
        [IBV_WR_RDMA_READ] = SW_REQUEST_READ,
        [IBV_WR_ATOMIC_CMP_AND_SWP] = SW_REQUEST_CMP_SWAP,
        [IBV_WR_ATOMIC_FETCH_AND_ADD] = SW_REQUEST_FETCH_ADD,
        [IBV_WR_ATOMIC_WRITE] = SW_REQUEST_ATOMIC_WRITE,
        [IBV_WR_FLUSH] = SW_REQUEST_FLUSH,
        [IBV_WR_LOCAL_INV] = SW_REQUEST_LOCAL,
        [IBV_WR_BIND_MW] = SW_REQUEST_LOCAL,
    };
    return kinds[wqe->opcode];
}

static uint8_t wqe_request_flags_of(const struct sw_wqe *wqe)
{
    uint8_t flags = (wqe->flags & SW_WQE_FENCE ? SW_REQUEST_FENCE : 0) |
                    (wqe->flags & SW_WQE_SOLICITED ? SW_REQUEST_SOLICITED : 0);
    if (wqe->opcode == IBV_WR_SEND_WITH_IMM || wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
        flags |= SW_REQUEST_IMM;
    if (wqe->opcode == IBV_WR_SEND_WITH_INV)
        flags |= SW_REQUEST_INV;
    return flags;
}

/* In place: a copy of what has just been written in parts waits for all stores before it, among
 * them the payload's of the packets that were taken in last. */
void sw_request_of_wqe(const struct sw_wqe *wqe, struct sw_request *out)
{
    *out = (struct sw_request){0};
    out->remote_addr = wqe->remote_addr;
    out->compare_add = wqe->compare_add;
    out->swap = wqe->swap;
    out->rkey = wqe->rkey;
    out->len_bytes = wqe->len_bytes;
    out->imm_or_key = wqe->imm;
    out->srq_num = wqe->srq_num;
    out->kind = wqe_request_kind_of(wqe);
    out->flags = wqe_request_flags_of(wqe);
}

bool sw_wqe_has_good_keys(struct sw_qp *qp, uint32_t position)
{
    const struct sw_wqe *wqe = sw_sq_at(&qp->sq, position);
    const struct ibv_sge *sges = sw_sq_sges(&qp->sq, position);
    bool fetches = wqe->opcode == IBV_WR_RDMA_READ || wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
                   wqe->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    uint32_t need = fetches ? IBV_ACCESS_LOCAL_WRITE : 0;
    for (uint32_t i = 0; i < wqe->sge_count; i++) {
        uint8_t *va;
        if (sges[i].length && !sw_sge_resolve(qp->pd_id, &sges[i], need, &va))
            return false;
    }
    return true;
}

/* The word of an ATOMIC WRITE, which travels in the request. */
static bool load_word(struct sw_qp *qp, uint32_t position, struct sw_request *request)
{
    const struct sw_wqe *wqe = sw_sq_at(&qp->sq, position);
    if (wqe->flags & SW_WQE_INLINE)
        return true; /* it is in the operand's place already */
    struct sw_gather gather = sw_gather_of(qp, position);
    return sw_gather_out(&gather, 0, (uint8_t *)&request->compare_add, sizeof(uint64_t));
}

static void describe_flush(const struct sw_wqe *wqe, struct sw_request *request)
{
    const struct sw_target_flush flush = sw_wqe_flush(wqe);
    request->remote_addr = flush.addr;
    request->len_bytes = (uint32_t)flush.len_bytes;
    request->flush_type = flush.type | (flush.whole_region ? SW_FLUSH_REGION : 0u);
}

bool sw_request_complete(struct sw_qp *qp, uint32_t position, struct sw_request *request)
{
    if (request->kind == SW_REQUEST_FLUSH)
        describe_flush(sw_sq_at(&qp->sq, position), request);
    return request->kind != SW_REQUEST_ATOMIC_WRITE || load_word(qp, position, request);
}
