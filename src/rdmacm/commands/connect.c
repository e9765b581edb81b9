/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections: asked for, listened for, accepted, refused and ended. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "device/nic/netdev.h"
#include "device/queue/settle.h"
#include "rdmacm/commands/command.h"
#include "rdmacm/connections/event.h"
#include "rdmacm/connections/handover.h"
#include "rdmacm/connections/listener.h"
#include "rdmacm/connections/route.h"
#include "rdmacm/connections/service.h"
#include "rdmacm/connections/unheard.h"
#include "rdmacm/iwarp/iwarp.h"
#include "wire/bytes.h"

/* As the kernel has them. */
#define BACKLOG_MAX 1024
#define RESPONSE_TIMEOUT 20 /* 4.096 us * 2^20: 4.3 s */
#define RETRIES_MAX 15
#define SIDR_TIMEOUT_NS (4096 * SW_NS_PER_MS)
#define PKEY 0xffff
#define NO_LID 0xffff

static uint8_t at_most_7(uint8_t count)
{
    return (uint8_t)sw_min_u16(count, 7);
}

static void connect_fill_header(const struct sw_ucm_id *id, uint8_t *out)
{
    struct sw_cm_ip_header header = {
        .ip_version = id->src.family == AF_INET ? 4 : 6,
        .src_port = sw_address_port(&id->src),
    };
    uint8_t gid[16];
    const bool is_v4 = id->src.family == AF_INET;
    sw_address_to_gid(&id->src, gid);
    memcpy(header.src_addr + (is_v4 ? 12 : 0), gid + (is_v4 ? 12 : 0), is_v4 ? 4 : 16);
    sw_address_to_gid(&id->dst, gid);
    memcpy(header.dst_addr + (is_v4 ? 12 : 0), gid + (is_v4 ? 12 : 0), is_v4 ? 4 : 16);
    sw_cm_ip_header_encode(&header, out);
}

/* Private data behind the header of the IP CM service. -EINVAL: more than fits. */
static int fill_private(const struct sw_ucm_id *id, const struct rdma_ucm_conn_param *param,
                        uint8_t *out, size_t room)
{
    size_t header = id->src.family == AF_IB ? 0 : SW_CM_IP_HEADER_BYTES;
    if (header + param->private_data_len > room)
        return -EINVAL;
    if (header)
        connect_fill_header(id, out);
    memcpy(out + header, param->private_data, param->private_data_len);
    return 0;
}

static enum sw_cm_service connect_service_of(uint8_t qp_type)
{
    switch (qp_type) {
    case IBV_QPT_UC:
        return SW_CM_UC;
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
        return SW_CM_EXTENDED;
    default:
        return SW_CM_RC;
    }
}

static void connect_fill_path(const struct sw_ucm_id *id, struct sw_cm_req_path *out)
{
    out->local_lid = out->remote_lid = NO_LID;
    memcpy(out->local_gid, id->route.sgid, sizeof(out->local_gid));
    memcpy(out->remote_gid, id->route.dgid, sizeof(out->remote_gid));
    out->flow_label = id->route.flow_label;
    out->packet_rate = id->route.rate;
    out->traffic_class = id->route.traffic_class;
    out->hop_limit = id->route.hop_limit;
    out->sl = id->route.sl;
    out->subnet_local = id->route.hop_limit <= 1;
    out->local_ack_timeout =
        sw_ucm_service_ack_timeout(SW_UCM_ACK_DELAY, id->route.packet_life_time);
}

static int connect_send_request(struct sw_ucm_id *id, const struct rdma_ucm_conn_param *param)
{
    struct sw_cm_path path;
    struct sw_cm_req req = {
        .vendor_id = id->ece.vendor_id,
        .ece_options = id->ece.attr_mod,
        .service_id = sw_address_service_id(&id->dst, id->port_space),
        .local_qpn = id->qpn,
        .responder_resources = param->responder_resources,
        .initiator_depth = param->initiator_depth,
        .remote_cm_response_timeout = RESPONSE_TIMEOUT,
        .local_cm_response_timeout = RESPONSE_TIMEOUT,
        .service = (uint8_t)connect_service_of(id->qp_type),
        .extended_service =
            connect_service_of(id->qp_type) == SW_CM_EXTENDED ? SW_CM_EXTENDED_XRC : 0,
        .flow_control = param->flow_control,
        .srq = id->srq,
        .starting_psn = id->psn,
        .retry_count = at_most_7(param->retry_count),
        .rnr_retry_count = at_most_7(param->rnr_retry_count),
        .pkey = PKEY,
        .path_mtu = id->route.mtu,
        .max_cm_retries = RETRIES_MAX,
    };
    int rc = fill_private(id, param, req.private_data, sizeof(req.private_data));
    if (rc)
        return rc;
    connect_fill_path(id, &req.primary);
    sw_ucm_route_path(id, &path);
    id->path_mtu = req.path_mtu;
    id->ack_timeout = req.primary.local_ack_timeout;
    id->retry_count = req.retry_count;
    id->rnr_retry_count = req.rnr_retry_count;
    id->responder_resources = req.responder_resources;
    id->initiator_depth = req.initiator_depth;
    return sw_cm_connect(&sw_ucm_machine, &id->cm, &path, &req, sw_clock_ns());
}

static int send_datagram_request(struct sw_ucm_id *id, const struct rdma_ucm_conn_param *param)
{
    struct sw_cm_path path;
    struct sw_cm_sidr_req req = {
        .pkey = PKEY,
        .service_id = sw_address_service_id(&id->dst, id->port_space),
    };
    int rc = fill_private(id, param, req.private_data, sizeof(req.private_data));
    if (rc)
        return rc;
    sw_ucm_route_path(id, &path);
    return sw_cm_resolve(&sw_ucm_machine, &id->cm, &path, &req, SIDR_TIMEOUT_NS, RETRIES_MAX,
                         sw_clock_ns());
}

/* The ID of a command that sets up a connection; what the command says of ECE is kept. `ece`: NULL
 * where the program is too old to say it. -EINVAL: the ID is not in this state. */
static int connect_find_id(const struct sw_ucm_request *request, uint32_t number,
                           const struct rdma_ucm_ece *ece, enum sw_ucm_state state,
                           struct sw_ucm_id **id)
{
    const int rc = sw_ucm_id_find_bound(request->channel, number, id);
    if (rc)
        return rc;
    if (ece)
        (*id)->ece = *ece;
    return (*id)->state == state ? 0 : -EINVAL;
}

static void connect_take_qp(struct sw_ucm_id *id, const struct rdma_ucm_conn_param *param)
{
    id->qpn = param->qp_num & SW_QPN_MASK;
    id->srq = param->srq;
}

int sw_ucm_connect(struct sw_ucm_request *request)
{
    const struct rdma_ucm_connect *in = &request->in.connect;
    struct sw_ucm_id *id;
    if (request->in_len < offsetof(struct rdma_ucm_connect, ece) || !in->conn_param.valid)
        return -EINVAL;
    int rc = connect_find_id(request, in->id, request->in_len >= sizeof(*in) ? &in->ece : NULL,
                             SW_UCM_ROUTE_RESOLVED, &id);
    if (rc)
        return rc;
    connect_take_qp(id, &in->conn_param);
    id->state = SW_UCM_CONNECT; /* what the machine says at once is heard */
    if (sw_ucm_is_iwarp(id))
        rc = sw_ucm_iwarp_connect(id, &in->conn_param);
    else if (id->qp_type == IBV_QPT_UD)
        rc = send_datagram_request(id, &in->conn_param);
    else
        rc = connect_send_request(id, &in->conn_param);
    if (rc)
        id->state = SW_UCM_ROUTE_RESOLVED;
    else
        id->has_cm = true;
    if (!rc && !sw_ucm_is_iwarp(id))
        sw_ucm_unheard_begin(id);
    sw_ucm_service_plan();
    return rc;
}

int sw_ucm_listen(struct sw_ucm_request *request)
{
    const struct rdma_ucm_listen *in = &request->in.listen;
    struct sw_ucm_id *id;
    int rc = sw_ucm_id_find(request->channel, in->id, &id);
    if (rc)
        return rc;
    if (id->state == SW_UCM_IDLE) {
        union sw_address any;
        memset(&any, 0, sizeof(any));
        any.family = AF_INET;
        rc = sw_ucm_bind_address(id, &any);
    }
    if (!rc && id->state != SW_UCM_ADDR_BOUND)
        rc = -EINVAL;
    if (!rc)
        rc = sw_ucm_listener_begin(id, in->backlog);
    if (rc)
        return rc;
    id->backlog = in->backlog && in->backlog <= BACKLOG_MAX ? in->backlog : BACKLOG_MAX;
    id->backlog_max = id->backlog;
    id->reuse_address = false;
    id->state = SW_UCM_LISTEN;
    return 0;
}

static int connect_send_reply(struct sw_ucm_id *id, const struct rdma_ucm_conn_param *param)
{
    struct sw_cm_rep rep = {
        .local_qpn = id->qpn,
        .starting_psn = id->psn,
        .responder_resources = param->responder_resources,
        .initiator_depth = param->initiator_depth,
        .target_ack_delay = SW_UCM_ACK_DELAY,
        .flow_control = param->flow_control,
        .rnr_retry_count = at_most_7(param->rnr_retry_count),
        .srq = id->srq,
        .vendor_id = id->ece.vendor_id,
        .ece_options = id->ece.attr_mod,
    };
    if (id->qp_type == IBV_QPT_XRC_RECV) {
        rep.local_eecn = id->qpn;
        rep.local_qpn = 0;
    }
    if (param->private_data_len > sizeof(rep.private_data))
        return -EINVAL;
    memcpy(rep.private_data, param->private_data, param->private_data_len);
    id->responder_resources = param->responder_resources;
    id->initiator_depth = param->initiator_depth;
    return sw_cm_accept(&sw_ucm_machine, &id->cm, &rep, sw_clock_ns());
}

static int send_datagram_reply(struct sw_ucm_id *id, const struct rdma_ucm_conn_param *param)
{
    /* Programs may name a Q_Key with AF_IB only. */
    int rc = sw_ucm_service_set_qkey(id, id->src.family == AF_IB ? param->qkey : 0);
    struct sw_cm_sidr_rep rep = {.status = SW_CM_SIDR_VALID,
                                 .qpn = id->qpn,
                                 .qkey = id->qkey,
                                 .vendor_id = id->ece.vendor_id,
                                 .ece_options = id->ece.attr_mod};
    if (rc || param->private_data_len > sizeof(rep.private_data))
        return -EINVAL;
    memcpy(rep.private_data, param->private_data, param->private_data_len);
    return sw_cm_answer(&sw_ucm_machine, &id->cm, &rep, sw_clock_ns());
}

static int refuse_peer(struct sw_ucm_id *id, uint16_t reason, const void *data, size_t len)
{
    if (id->qp_type != IBV_QPT_UD)
        return sw_cm_reject(&sw_ucm_machine, &id->cm, reason, NULL, 0, data, len, sw_clock_ns());
    struct sw_cm_sidr_rep rep = {.status = SW_CM_SIDR_REJECTED};
    if (len > sizeof(rep.private_data))
        return -EINVAL;
    memcpy(rep.private_data, data, len);
    return sw_cm_answer(&sw_ucm_machine, &id->cm, &rep, sw_clock_ns());
}

/* On the passive side: a reply. On the active side, whose program sets up its queue pair itself:
 * that it is ready. */
int sw_ucm_accept(struct sw_ucm_request *request)
{
    const struct rdma_ucm_accept *in = &request->in.accept;
    const struct rdma_ucm_conn_param *param = &in->conn_param;
    struct sw_ucm_id *id;
    if (request->in_len < offsetof(struct rdma_ucm_accept, ece))
        return -EINVAL;
    int rc = connect_find_id(request, in->id, request->in_len >= sizeof(*in) ? &in->ece : NULL,
                             SW_UCM_CONNECT, &id);
    if (rc)
        return rc;
    if (param->valid)
        connect_take_qp(id, param);
    if (sw_ucm_is_iwarp(id)) {
        rc = sw_ucm_iwarp_accept(id, param);
        if (!rc)
            sw_ucm_iwarp_accepted(id, in->uid);
        return rc;
    }
    if (id->qp_type == IBV_QPT_UD)
        rc = send_datagram_reply(id, param);
    else if (param->valid)
        rc = connect_send_reply(id, param);
    else
        rc = sw_cm_ready(&sw_ucm_machine, &id->cm, NULL, 0, sw_clock_ns());
    if (rc)
        refuse_peer(id, SW_CM_REASON_CONSUMER, "", 0);
    else if (param->valid)
        id->uid = in->uid;
    sw_ucm_handover_note(id);
    sw_ucm_service_plan();
    return rc;
}

int sw_ucm_reject(struct sw_ucm_request *request)
{
    const struct rdma_ucm_reject *in = &request->in.reject;
    const uint8_t reason = in->reason ? in->reason : SW_CM_REASON_CONSUMER;
    struct sw_ucm_id *id;
    if (reason != SW_CM_REASON_CONSUMER && reason != SW_CM_REASON_VENDOR_OPTION)
        return -EINVAL;
    int rc = sw_ucm_id_find_bound(request->channel, in->id, &id);
    if (!rc && !id->has_cm)
        rc = -EINVAL;
    if (!rc && sw_ucm_is_iwarp(id))
        return sw_ucm_iwarp_reject(id, in->private_data, in->private_data_len);
    if (!rc)
        rc = refuse_peer(id, reason, in->private_data, in->private_data_len);
    sw_ucm_service_plan();
    return rc;
}

int sw_ucm_disconnect(struct sw_ucm_request *request)
{
    struct sw_ucm_id *id;
    int rc = sw_ucm_id_find_bound(request->channel, request->in.disconnect.id, &id);
    if (rc)
        return rc;
    if (!id->has_cm)
        return -EINVAL;
    if (sw_ucm_is_iwarp(id))
        return sw_ucm_iwarp_disconnect(id);
    sw_qp_settle(id->qpn); /* what it has received is acknowledged before it says DREQ */
    /* Begins it, or answers the peer's; a connection that is neither needs nothing. */
    if (sw_cm_disconnect(&sw_ucm_machine, &id->cm, NULL, 0, sw_clock_ns()))
        sw_cm_disconnected(&sw_ucm_machine, &id->cm, NULL, 0, sw_clock_ns());
    sw_ucm_handover_note(id);
    sw_ucm_service_plan();
    return 0;
}

int sw_ucm_notify(struct sw_ucm_request *request)
{
    const struct rdma_ucm_notify *in = &request->in.notify;
    struct sw_ucm_id *id;
    int rc = sw_ucm_id_find_bound(request->channel, in->id, &id);
    if (rc)
        return rc;
    if (!id->has_cm)
        return -EINVAL;
    if (sw_ucm_is_iwarp(id))
        return -EINVAL;
    if (in->event == IBV_EVENT_COMM_EST)
        rc = sw_cm_established(&sw_ucm_machine, &id->cm, sw_clock_ns());
    else if (in->event != IBV_EVENT_PATH_MIG)
        rc = -EINVAL;
    sw_ucm_service_plan();
    return rc;
}
