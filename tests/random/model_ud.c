/* SPDX-License-Identifier: BSD-2-Clause */
/* The reference model of datagrams: IBTA Vol1 9.8.3, 10.2.5, 11.4.1.2. A message that does not fit
 * is dropped, and nobody is told. */
#include <string.h>

#include "model_impl.h"

static bool receives(const struct model_end *to)
{
    return to->exists && (to->state == IBV_QPS_RTR || to->state == IBV_QPS_RTS ||
                          to->state == IBV_QPS_SQD || to->state == IBV_QPS_SQE);
}

/* The high bit stands for the sender's own: 10.2.5. */
static bool has_key(const struct model *model, int proc, int ud, const struct model_op *op)
{
    uint32_t qkey = op->qkey >> 31 ? model->uds[proc][ud].qkey : op->qkey;
    return qkey == model->uds[op->to_proc][op->to_ud].qkey;
}

bool model_datagram_fits(const struct model *model, int proc, int ud, const struct model_op *op)
{
    const struct model_end *to = &model->uds[op->to_proc][op->to_ud];
    const uint32_t all = GRH_BYTES + model_op_len(op);
    if (!receives(to) || !has_key(model, proc, ud, op))
        return false;
    if (to->uses_srq)
        return model->srq_count[to->proc][SRQ_PLAIN] && all <= SLOT_BYTES;
    return to->recv_count && model_total(to->recvs[0].sges, to->recvs[0].sge_count) >= all;
}

static struct model_expect *into_receive(struct model *model, struct model_end *to,
                                         const uint8_t *data, uint32_t len)
{
    uint32_t all = GRH_BYTES + len;
    if (to->recv_count == 0 || model_total(to->recvs[0].sges, to->recvs[0].sge_count) < all)
        return NULL; /* the receive serves the next */
    struct model_recv recv = model_take(to);
    bool good = model_receivable(model, to->proc, &recv, all);
    struct model_expect *one =
        model_expect(&to->receives, recv.wr_id, good ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR);
    one->recv = recv;
    one->undefined = !good;
    if (good)
        model_scatter(model, to->proc, recv.sges, recv.sge_count, GRH_BYTES, data, len);
    else
        model_error(to);
    return good ? one : NULL;
}

static void arrive(struct model *model, int proc, int ud, const struct model_op *op)
{
    static uint8_t data[LANE_BYTES];
    struct model_end *to = &model->uds[op->to_proc][op->to_ud];
    uint32_t len = model_op_len(op);
    if (op->to_conn >= 0 || !receives(to) || !has_key(model, proc, ud, op))
        return;
    model_gather(model, proc, op, data + GRH_BYTES);
    struct model_expect *one = NULL;
    if (!to->uses_srq)
        one = into_receive(model, to, data + GRH_BYTES, len);
    else if (model->srq_count[to->proc][SRQ_PLAIN] && GRH_BYTES + len <= SLOT_BYTES)
        one = model_take_srq(model, to, SRQ_PLAIN, data, GRH_BYTES + len);
    if (!one)
        return;
    model_delivered(one, op);
    one->byte_len += GRH_BYTES;
    one->has_grh = true;
    one->src_proc = proc;
    one->src_ud = ud;
}

int model_datagram(struct model *model, int proc, int ud, const struct model_op *op)
{
    struct model_end *from = &model->uds[proc][ud];
    int rc = model_admit(from, op);
    if (rc)
        return rc;
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    if (from->state != IBV_QPS_RTS)
        status = IBV_WC_WR_FLUSH_ERR;
    else if (model_op_len(op) > model->mtu_bytes)
        status = IBV_WC_LOC_LEN_ERR;
    else if (!model_sources_reach(model, proc, op))
        status = IBV_WC_LOC_PROT_ERR;
    else
        arrive(model, proc, ud, op);
    if (model_report(from, op, status) && from->state == IBV_QPS_RTS)
        from->state = IBV_QPS_SQE; /* where it goes on receiving: 10.3.1.6 */
    return 0;
}
