// SPDX-License-Identifier: BSD-2-Clause
// What inline verbs call: the functions of a context.
#include "fake_state.hpp"

namespace fake
{

namespace
{

int poll_cq(ibv_cq *, int entries, ibv_wc *wc)
{
    if (fails("ibv_poll_cq"))
        return -1;
    if (now.completions.empty() || !entries)
        return 0;
    *wc = {};
    wc->status = now.completions.front();
    now.completions.pop_front();
    return 1;
}

int post_send(ibv_qp *, ibv_send_wr *wr, ibv_send_wr **bad)
{
    *bad = wr;
    if (int code = step("ibv_post_send"))
        return code;
    for (; wr; wr = wr->next)
        if (wr->send_flags & IBV_SEND_SIGNALED)
            now.completions.push_back(IBV_WC_SUCCESS);
    return 0;
}

int post_recv(ibv_qp *, ibv_recv_wr *wr, ibv_recv_wr **bad)
{
    *bad = wr;
    return step("ibv_post_recv");
}

int post_srq_recv(ibv_srq *, ibv_recv_wr *wr, ibv_recv_wr **bad)
{
    *bad = wr;
    return step("ibv_post_srq_recv");
}

int req_notify_cq(ibv_cq *, int)
{
    return step("ibv_req_notify_cq");
}

ibv_mw *alloc_mw(ibv_pd *pd, ibv_mw_type type)
{
    auto *made = create<ibv_mw>("ibv_alloc_mw", {pd});

    if (made) {
        made->context = pd->context;
        made->pd = pd;
        made->type = type;
    }
    return made;
}

int dealloc_mw(ibv_mw *mw)
{
    return destroy("ibv_dealloc_mw", mw);
}

ibv_cq_ex *create_cq_ex(ibv_context *context, ibv_cq_init_attr_ex *attr)
{
    return of_context<ibv_cq_ex>(context, "ibv_create_cq_ex", attr);
}

ibv_srq *create_srq_ex(ibv_context *context, ibv_srq_init_attr_ex *attr)
{
    auto *made = create<ibv_srq>("ibv_create_srq_ex", {context, attr->pd, attr->xrcd, attr->cq});

    if (made)
        made->context = context;
    return made;
}

ibv_qp *create_qp_ex(ibv_context *context, ibv_qp_init_attr_ex *attr)
{
    auto *made = create<ibv_qp>("ibv_create_qp_ex",
                                {context, attr->pd, attr->send_cq, attr->recv_cq, attr->srq});

    if (made) {
        made->context = context;
        made->pd = attr->pd;
        made->qp_type = attr->qp_type;
    }
    return made;
}

ibv_qp *open_qp(ibv_context *context, ibv_qp_open_attr *attr)
{
    auto *made = create<ibv_qp>("ibv_open_qp", {context, attr->xrcd});

    if (made)
        made->context = context;
    return made;
}

ibv_td *alloc_td(ibv_context *context, ibv_td_init_attr *attr)
{
    return of_context<ibv_td>(context, "ibv_alloc_td", attr);
}

int dealloc_td(ibv_td *td)
{
    return destroy("ibv_dealloc_td", td);
}

ibv_pd *alloc_parent_domain(ibv_context *context, ibv_parent_domain_init_attr *attr)
{
    return pd_of(context, "ibv_alloc_parent_domain", attr->pd, attr->td);
}

ibv_xrcd *open_xrcd(ibv_context *context, ibv_xrcd_init_attr *attr)
{
    return of_context<ibv_xrcd>(context, "ibv_open_xrcd", attr);
}

int close_xrcd(ibv_xrcd *xrcd)
{
    return destroy("ibv_close_xrcd", xrcd);
}

ibv_flow *create_flow(ibv_qp *qp, ibv_flow_attr *)
{
    auto *made = create<ibv_flow>("ibv_create_flow", {qp});

    if (made)
        made->context = qp->context;
    return made;
}

int destroy_flow(ibv_flow *flow)
{
    return destroy("ibv_destroy_flow", flow);
}

ibv_flow_action *create_flow_action(ibv_context *context, ibv_flow_action_esp_attr *attr)
{
    return of_context<ibv_flow_action>(context, "ibv_create_flow_action_esp", attr);
}

int destroy_flow_action(ibv_flow_action *action)
{
    return destroy("ibv_destroy_flow_action", action);
}

ibv_dm *alloc_dm(ibv_context *context, ibv_alloc_dm_attr *attr)
{
    return of_context<ibv_dm>(context, "ibv_alloc_dm", attr);
}

int free_dm(ibv_dm *dm)
{
    return destroy("ibv_free_dm", dm);
}

ibv_mr *reg_dm_mr(ibv_pd *pd, ibv_dm *dm, uint64_t, std::size_t length, unsigned int)
{
    return mr_of("ibv_reg_dm_mr", pd, nullptr, length, dm);
}

ibv_mr *alloc_null_mr(ibv_pd *pd)
{
    return mr_of("ibv_alloc_null_mr", pd, nullptr, 0);
}

ibv_counters *create_counters(ibv_context *context, ibv_counters_init_attr *attr)
{
    return of_context<ibv_counters>(context, "ibv_create_counters", attr);
}

int destroy_counters(ibv_counters *counters)
{
    return destroy("ibv_destroy_counters", counters);
}

ibv_wq *create_wq(ibv_context *context, ibv_wq_init_attr *attr)
{
    auto *made = create<ibv_wq>("ibv_create_wq", {context, attr->pd, attr->cq});

    if (made)
        made->context = context;
    return made;
}

int destroy_wq(ibv_wq *wq)
{
    return destroy("ibv_destroy_wq", wq);
}

ibv_rwq_ind_table *create_table(ibv_context *context, ibv_rwq_ind_table_init_attr *attr)
{
    auto *made = create<ibv_rwq_ind_table>("ibv_create_rwq_ind_table",
                                           {context, attr->ind_tbl ? *attr->ind_tbl : nullptr});

    if (made)
        made->context = context;
    return made;
}

int destroy_table(ibv_rwq_ind_table *table)
{
    return destroy("ibv_destroy_rwq_ind_table", table);
}

int query_port(ibv_context *, uint8_t, ibv_port_attr *attr, std::size_t)
{
    *attr = {};
    attr->gid_tbl_len = 3;
    attr->active_mtu = IBV_MTU_1024;
    return step("ibv_query_port");
}

} // namespace

void fill_context(verbs_context &made)
{
    made.context.ops.poll_cq = poll_cq;
    made.context.ops.post_send = post_send;
    made.context.ops.post_recv = post_recv;
    made.context.ops.post_srq_recv = post_srq_recv;
    made.context.ops.req_notify_cq = req_notify_cq;
    made.context.ops.alloc_mw = alloc_mw;
    made.context.ops.dealloc_mw = dealloc_mw;
    made.create_cq_ex = create_cq_ex;
    made.create_srq_ex = create_srq_ex;
    made.create_qp_ex = create_qp_ex;
    made.open_qp = open_qp;
    made.alloc_td = alloc_td;
    made.dealloc_td = dealloc_td;
    made.alloc_parent_domain = alloc_parent_domain;
    made.open_xrcd = open_xrcd;
    made.close_xrcd = close_xrcd;
    made.ibv_create_flow = create_flow;
    made.ibv_destroy_flow = destroy_flow;
    made.create_flow_action_esp = create_flow_action;
    made.destroy_flow_action = destroy_flow_action;
    made.alloc_dm = alloc_dm;
    made.free_dm = free_dm;
    made.reg_dm_mr = reg_dm_mr;
    made.alloc_null_mr = alloc_null_mr;
    made.create_counters = create_counters;
    made.destroy_counters = destroy_counters;
    made.create_wq = create_wq;
    made.destroy_wq = destroy_wq;
    made.create_rwq_ind_table = create_table;
    made.destroy_rwq_ind_table = destroy_table;
    made.query_port = query_port;
}

} // namespace fake
