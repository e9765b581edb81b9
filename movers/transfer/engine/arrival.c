/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/arrival.h"

#include <string.h>

#include "common/rdma/listener.h"
#include "common/serve/origin.h"
#include "transfer/engine/agent.h"
#include "transfer/engine/device.h"
#include "transfer/engine/lease.h"
#include "transfer/engine/origin.h"
#include "transfer/engine/rail.h"
#include "transfer/engine/session.h"
#include "transfer/engine/visitor.h"
#include "transfer/engine/window.h"

enum { READS_MAX = 16 };

static void reject_request(struct rdma_cm_id *id, enum xfw_reason reason)
{
    uint8_t why[XFW_REJECT_BYTES];
    xfw_put_reject(why, reason);
    rdma_reject(id, why, sizeof(why));
    rdma_destroy_id(id);
}

static enum xfw_reason check_request(const struct sw_xfer_agent *agent, const uint8_t *data,
                                     size_t bytes, struct xfw_connect *hello)
{
    const enum xfw_reason reason = xfw_get_connect(data, bytes, hello);
    if (reason)
        return reason;
    if (hello->lane >= agent->rails_count)
        return XFW_REASON_MALFORMED;
    if (memcmp(hello->called, agent->instance, sizeof(hello->called)) != 0)
        return XFW_REASON_INSTANCE;
    if (hello->layout && agent->options.layout && hello->layout != agent->options.layout)
        return XFW_REASON_LAYOUT;
    return 0;
}

/* rdma_accept() answers at once. Windows are bound before that, as the peer may use them then. */
static bool bind_windows(struct xfe_visitor *visitor, uint8_t reads)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
    struct ibv_qp *qp = visitor->id->qp;
    int mask;
    if (rdma_init_qp_attr(visitor->id, &attr, &mask))
        return false;
    attr.max_dest_rd_atomic = reads;
    if (ibv_modify_qp(qp, &attr, mask))
        return false;
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS};
    if (rdma_init_qp_attr(visitor->id, &attr, &mask))
        return false;
    attr.max_rd_atomic = 0;
    return !ibv_modify_qp(qp, &attr, mask) && xfe_windows_bind(visitor);
}

static bool accept_visitor(struct xfe_visitor *visitor, uint8_t reads, bool is_ready)
{
    struct xfw_accept accept = {
        .notices = XFE_CREDITS, .notice_bytes_max = SW_XFER_NOTICE_MAX, .abilities = XFW_CAN_SUM};
    memcpy(accept.instance, visitor->agent->instance, sizeof(accept.instance));
    uint8_t answer[XFW_ACCEPT_BYTES];
    xfw_put_accept(answer, &accept);
    struct rdma_conn_param param = {
        .private_data = answer,
        .private_data_len = sizeof(answer),
        .responder_resources = reads,
        .rnr_retry_count = 7,
    };
    struct ibv_qp *qp = visitor->id->qp;
    param.qp_num = qp->qp_num;
    if (is_ready) /* rdma_accept() would begin anew with it */
        visitor->id->qp = NULL;
    const bool is_accepted = !rdma_accept(visitor->id, &param);
    visitor->id->qp = qp;
    return is_accepted;
}

static void arrival_take_request(struct sw_xfer_agent *agent, const struct mover_arrival *request)
{
    const struct rdma_conn_param *asked = &request->param;
    const uint8_t reads =
        asked->responder_resources < READS_MAX ? asked->responder_resources : (uint8_t)READS_MAX;
    struct rdma_cm_id *id = request->id;
    struct xfw_connect hello;
    struct xfe_session session = {.session = 0};
    id->context = NULL;
    const enum xfw_reason reason =
        check_request(agent, asked->private_data, asked->private_data_len, &hello);
    if (reason)
        return reject_request(id, reason);
    session.session = hello.session;
    const struct in6_addr from = mover_origin_of_peer(rdma_get_peer_addr(id));
    session.origin = xfe_origin_of(agent, &from);
    memcpy(session.instance, hello.calling, sizeof(session.instance));
    /* Nothing of the lane's earlier queue pair may be taken once the new one is accepted. */
    struct xfe_visitor *earlier = xfe_visitor_find(agent, &session, hello.lane);
    if (earlier && xfw_is_earlier(hello.count, earlier->count))
        return reject_request(id, XFW_REASON_MALFORMED); /* it came late */
    if (earlier)
        xfe_visitor_end(earlier);
    if (!xfe_device_find(agent, id->verbs))
        return reject_request(id, XFW_REASON_MEMORY);
    struct xfe_visitor *visitor = xfe_visitor_new(agent, id, &session);
    if (!visitor)
        return reject_request(id, XFW_REASON_MANY);
    visitor->lane = hello.lane;
    visitor->count = hello.count;
    const bool has_windows = xfe_leases_have_windows(agent, visitor->session->number);
    if (!xfe_visitor_make_queue(visitor) || (has_windows && !bind_windows(visitor, reads))) {
        xfe_visitor_free(visitor);
        return reject_request(id, XFW_REASON_MEMORY);
    }
    if (!accept_visitor(visitor, reads, has_windows)) {
        xfe_visitor_free(visitor);
        rdma_destroy_id(id);
    }
}

void xfe_arrivals_take(struct sw_xfer_agent *agent)
{
    struct mover_arrival arrival;
    struct xfe_visitor *ended;
    while (agent->events && mover_listener_next(agent->events, &arrival)) {
        agent->progress++;
        if (arrival.type == RDMA_CM_EVENT_CONNECT_REQUEST)
            arrival_take_request(agent, &arrival);
        else if (!xfe_rails_take(agent, &arrival) && (ended = mover_arrival_ended(&arrival)))
            xfe_visitor_end(ended);
    }
    xfe_rails_tick(agent);
}
