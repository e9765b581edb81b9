/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests as the device takes them, and its completions. */
#include <string.h>

#include "pmem/client/client.h"
#include "sidewire/flush.h"

/* Fills in the pieces of a request that is no FLUSH. Returns how many pieces it has. */
static uint32_t fill_sges(struct pmc_client *c, const struct pmc_request *r,
                          struct ibv_sge sges[SW_PMEM_PIECES_MAX])
{
    if (r->local == PMC_PIECES) {
        for (uint32_t i = 0; i < r->op->pieces_count; i++)
            sges[i] = (struct ibv_sge){.addr = (uintptr_t)r->op->pieces[i].data,
                                       .length = r->op->pieces[i].bytes,
                                       .lkey = r->op->pieces[i].mem->mr->lkey};
        return r->op->pieces_count;
    }
    uint64_t *at = r->local == PMC_SINK ? &c->scratch->sink : &c->scratch->values[r->id];
    if (r->local == PMC_VALUE)
        *at = r->op->value;
    sges[0] = (struct ibv_sge){
        .addr = (uintptr_t)at, .length = (uint32_t)r->bytes, .lkey = c->scratch_mr->lkey};
    return 1;
}

static unsigned send_flags(const struct pmc_request *r)
{
    return (r->is_fenced ? (unsigned)IBV_SEND_FENCE : 0) |
           (r->signals ? (unsigned)IBV_SEND_SIGNALED : 0);
}

static void build_one(struct pmc_client *c, const struct pmc_request *r)
{
    struct ibv_qp_ex *qpx = c->link.qpx;
    struct ibv_sge sges[SW_PMEM_PIECES_MAX];
    qpx->wr_id = r->id;
    qpx->wr_flags = send_flags(r);
    switch (r->verb) {
    case PMC_FLUSH:
        ibv_wr_flush(qpx, r->key, r->remote, r->bytes,
                     r->op->flush == SW_PMEM_FLUSH_VISIBLE ? IBV_FLUSH_GLOBAL
                                                           : IBV_FLUSH_PERSISTENT,
                     IBV_FLUSH_RANGE);
        return;
    case PMC_ATOMIC_WRITE:
        ibv_wr_atomic_write(qpx, r->key, r->remote, &r->op->value);
        return;
    case PMC_READ:
        ibv_wr_rdma_read(qpx, r->key, r->remote);
        break;
    case PMC_WRITE:
        ibv_wr_rdma_write(qpx, r->key, r->remote);
        break;
    }
    const uint32_t count = fill_sges(c, r, sges);
    ibv_wr_set_sge_list(qpx, count, sges);
}

/* A queue pair of this kind has READs and WRITEs only: the machine asks for nothing else. */
static bool post_plain(struct pmc_client *c, const struct pmc_request *requests, uint32_t count)
{
    struct ibv_sge sges[SW_PMEM_CHAIN_MAX][SW_PMEM_PIECES_MAX];
    struct ibv_send_wr wrs[SW_PMEM_CHAIN_MAX], *bad;
    memset(wrs, 0, sizeof(wrs));
    for (uint32_t i = 0; i < count; i++) {
        const struct pmc_request *r = &requests[i];
        wrs[i].wr_id = r->id;
        wrs[i].sg_list = sges[i];
        wrs[i].num_sge = (int)fill_sges(c, r, sges[i]);
        wrs[i].opcode = r->verb == PMC_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        wrs[i].send_flags = send_flags(r);
        wrs[i].wr.rdma.remote_addr = r->remote;
        wrs[i].wr.rdma.rkey = r->key;
        wrs[i].next = i + 1 < count ? &wrs[i + 1] : NULL;
    }
    return !ibv_post_send(c->link.connection.id->qp, wrs, &bad);
}

bool pmc_post(struct sw_pmem *p, const struct pmc_request *requests, uint32_t count)
{
    struct pmc_client *c = pmc_client_of(p);
    if (!c->link.qpx)
        return post_plain(c, requests, count);
    ibv_wr_start(c->link.qpx);
    for (uint32_t i = 0; i < count; i++)
        build_one(c, &requests[i]);
    return !ibv_wr_complete(c->link.qpx);
}

/* UNREACHABLE where nobody answered, or the queue pair had ended before. */
static enum sw_pmem_status post_status_of(enum ibv_wc_status status)
{
    if (status == IBV_WC_SUCCESS)
        return SW_PMEM_OK;
    if (status == IBV_WC_REM_ACCESS_ERR)
        return SW_PMEM_DENIED;
    if (status == IBV_WC_REM_INV_REQ_ERR)
        return SW_PMEM_UNSUPPORTED;
    if (status == IBV_WC_REM_OP_ERR) /* of a FLUSH */
        return SW_PMEM_DISK_FAILED;
    if (status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_LOC_QP_OP_ERR)
        return SW_PMEM_SYSTEM;
    return SW_PMEM_UNREACHABLE;
}

void pmc_chain_completion(struct pmc_client *c, const struct ibv_wc *wc)
{
    pmc_completed(&c->pmem, wc->wr_id, post_status_of(wc->status), ibv_wc_status_str(wc->status));
}
