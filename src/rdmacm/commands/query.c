/* SPDX-License-Identifier: BSD-2-Clause */
/* What a program may ask of an ID: addresses, paths, and how to set up its queue pair. */
#include <endian.h>
#include <errno.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>

#include "base/minmax.h"
#include "device/nic/netdev.h"
#include "rdmacm/commands/command.h"
#include "rdmacm/commands/user.h"
#include "rdmacm/connections/event.h"
#include "rdmacm/connections/route.h"
#include "rdmacm/connections/service.h"
#include "rdmacm/iwarp/iwarp.h"

#define EXACTLY 2 /* the selector of MTU, rate and life time in a path record */
#define PKEY 0xffff
#define PORT 1

/* As <infiniband/sa.h> has it for programs: the order of the wire. */
static void pack_path(const struct sw_ucm_id *id, struct ib_path_rec_data *out)
{
    struct ibv_path_record record = {
        .flowlabel_hoplimit = htobe32(id->route.flow_label << 8 | id->route.hop_limit),
        .tclass = id->route.traffic_class,
        .reversible_numpath = 1 << 7,
        .pkey = htobe16(PKEY),
        .qosclass_sl = htobe16(id->route.sl),
        .mtu = (uint8_t)(EXACTLY << 6 | id->route.mtu),
        .rate = (uint8_t)(EXACTLY << 6 | id->route.rate),
        .packetlifetime = (uint8_t)(EXACTLY << 6 | id->route.packet_life_time),
    };
    memcpy(record.dgid.raw, id->route.dgid, sizeof(record.dgid.raw));
    memcpy(record.sgid.raw, id->route.sgid, sizeof(record.sgid.raw));
    out->flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
    static_assert(sizeof(record) == sizeof(out->path_rec), "a path record is 64 bytes");
    memcpy(out->path_rec, &record, sizeof(record));
}

static void query_fill_path(const struct sw_ucm_id *id, struct ib_user_path_rec *out)
{
    memcpy(out->dgid, id->route.dgid, sizeof(out->dgid));
    memcpy(out->sgid, id->route.sgid, sizeof(out->sgid));
    out->pkey = htobe16(PKEY);
    if (!id->has_path)
        return;
    out->flow_label = htobe32(id->route.flow_label);
    out->reversible = 1;
    out->mtu = id->route.mtu;
    out->hop_limit = id->route.hop_limit;
    out->traffic_class = id->route.traffic_class;
    out->sl = id->route.sl;
    out->mtu_selector = out->rate_selector = out->packet_life_time_selector = EXACTLY;
    out->rate = id->route.rate;
    out->packet_life_time = id->route.packet_life_time;
}

int sw_ucm_query_route(struct sw_ucm_request *request)
{
    const struct rdma_ucm_query *in = &request->in.query;
    struct rdma_ucm_query_route_resp response = {0};
    struct sw_ucm_id *id;
    if (request->out_len < offsetof(struct rdma_ucm_query_route_resp, ibdev_index))
        return -ENOSPC;
    int rc = sw_ucm_id_find(request->channel, in->id, &id);
    if (rc)
        return rc;
    memcpy(&response.src_addr, &id->src, sizeof(response.src_addr));
    memcpy(&response.dst_addr, &id->dst, sizeof(response.dst_addr));
    sw_ucm_route_look(id);
    if (id->dev) {
        struct sw_netdev_info info;
        sw_netdev_read(id->dev, &info);
        response.node_guid = info.guid;
        response.ibdev_index = (uint32_t)info.index;
        response.port_num = PORT;
        response.num_paths = id->has_path;
        query_fill_path(id, &response.ib_route[0]);
    }
    return sw_user_write(in->response, &response, sw_min_u64(request->out_len, sizeof(response)));
}

static void query_device(const struct sw_ucm_id *id, struct rdma_ucm_query_addr_resp *out)
{
    struct sw_netdev_info info;
    if (!id->dev)
        return;
    sw_netdev_read(id->dev, &info);
    out->node_guid = info.guid;
    out->ibdev_index = (uint32_t)info.index;
    out->port_num = PORT;
    out->pkey = htobe16(PKEY);
}

static void query_addr(const struct sw_ucm_id *id, struct rdma_ucm_query_addr_resp *out)
{
    out->src_size = (uint16_t)sw_address_size(&id->src);
    memcpy(&out->src_addr, &id->src, out->src_size);
    out->dst_size = (uint16_t)sw_address_size(&id->dst);
    memcpy(&out->dst_addr, &id->dst, out->dst_size);
    query_device(id, out);
}

static void fill_gid(const struct sw_ucm_id *id, const union sw_address *address,
                     const uint8_t gid[16], struct sw_sockaddr_ib *out)
{
    if (address->family == AF_IB) {
        *out = address->ib;
        return;
    }
    out->family = AF_IB;
    if (id->dev) {
        out->pkey = htobe16(PKEY);
        memcpy(out->gid, gid, sizeof(out->gid));
    }
    out->sid = htobe64(sw_address_service_id(address, id->port_space));
}

static void query_gid(struct sw_ucm_id *id, struct rdma_ucm_query_addr_resp *out)
{
    struct sw_sockaddr_ib gids[2] = {0};
    sw_ucm_route_look(id);
    fill_gid(id, &id->src, id->route.sgid, &gids[0]);
    fill_gid(id, &id->dst, id->route.dgid, &gids[1]);
    query_device(id, out);
    out->src_size = out->dst_size = sizeof(gids[0]);
    memcpy(&out->src_addr, &gids[0], sizeof(gids[0]));
    memcpy(&out->dst_addr, &gids[1], sizeof(gids[1]));
}

static int query_path(const struct sw_ucm_id *id, uint64_t to, size_t out_len)
{
    const size_t path_len = sizeof(struct ib_path_rec_data);
    union {
        struct rdma_ucm_query_path_resp head;
        uint8_t room[sizeof(struct rdma_ucm_query_path_resp) + sizeof(struct ib_path_rec_data)];
    } response = {.room = {0}};
    response.head.num_paths = id->has_path;
    size_t len = sizeof(response.head);
    if (out_len < len)
        return -ENOSPC;
    if (id->has_path && out_len - len > path_len) {
        pack_path(id, response.head.path_data);
        len += path_len;
    }
    return sw_user_write(to, &response, len);
}

/* None: they were never resolved. */
static int query_ib_service(uint64_t to, size_t out_len)
{
    const struct sw_ucm_query_ib_service_resp response = {.num_service_recs = 0};
    return out_len < sizeof(response) ? -ENOSPC : sw_user_write(to, &response, sizeof(response));
}

int sw_ucm_query(struct sw_ucm_request *request)
{
    const struct rdma_ucm_query *in = &request->in.query;
    struct rdma_ucm_query_addr_resp response = {0};
    struct sw_ucm_id *id;
    int rc = sw_ucm_id_find(request->channel, in->id, &id);
    if (rc)
        return rc;
    if (in->option == RDMA_USER_CM_QUERY_PATH)
        return query_path(id, in->response, request->out_len);
    if (in->option == SW_UCM_QUERY_IB_SERVICE)
        return query_ib_service(in->response, request->out_len);
    if (in->option != RDMA_USER_CM_QUERY_ADDR && in->option != RDMA_USER_CM_QUERY_GID)
        return -ENOSYS;
    if (request->out_len < offsetof(struct rdma_ucm_query_addr_resp, ibdev_index))
        return -ENOSPC;
    if (in->option == RDMA_USER_CM_QUERY_ADDR)
        query_addr(id, &response);
    else
        query_gid(id, &response);
    return sw_user_write(in->response, &response, sw_min_u64(request->out_len, sizeof(response)));
}

static bool is_reliable(const struct sw_ucm_id *id)
{
    return id->qp_type == IBV_QPT_RC || id->qp_type == IBV_QPT_XRC_SEND ||
           id->qp_type == IBV_QPT_XRC_RECV;
}

/* A queue pair without a connection yet, or that never has one. */
static int init_unconnected(struct sw_ucm_id *id, struct ib_uverbs_qp_attr *out)
{
    out->qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    out->port_num = PORT;
    if (id->qp_type != IBV_QPT_UD) {
        out->qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
        return 0;
    }
    int rc = sw_ucm_service_set_qkey(id, 0);
    out->qp_attr_mask |= IBV_QP_QKEY;
    out->qkey = id->qkey;
    return rc;
}

static void init_to_init(const struct sw_ucm_id *id, struct ib_uverbs_qp_attr *out)
{
    out->qp_attr_mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    out->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (id->responder_resources)
        out->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    out->port_num = PORT;
}

static void init_to_rtr(const struct sw_ucm_id *id, struct ib_uverbs_qp_attr *out)
{
    out->qp_attr_mask =
        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    sw_ucm_event_address(id, id->route.dgid, &out->ah_attr);
    out->path_mtu = id->path_mtu;
    out->dest_qp_num = id->remote_qpn;
    out->rq_psn = id->psn;
    if (id->qp_type != IBV_QPT_RC && id->qp_type != IBV_QPT_XRC_RECV)
        return;
    out->qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    out->max_dest_rd_atomic = id->responder_resources;
}

static void init_to_rts(const struct sw_ucm_id *id, struct ib_uverbs_qp_attr *out)
{
    out->qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    out->sq_psn = id->remote_psn;
    if (!is_reliable(id))
        return;
    out->qp_attr_mask |= IBV_QP_TIMEOUT;
    out->timeout = id->timeout_set ? id->timeout : id->ack_timeout;
    if (id->qp_type == IBV_QPT_XRC_RECV)
        return;
    out->qp_attr_mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    out->retry_cnt = id->retry_count;
    out->rnr_retry = id->rnr_retry_count;
    out->max_rd_atomic = id->initiator_depth;
}

/* What the connection's state allows: the peer must be known before RTR. */
static int init_connected(const struct sw_ucm_id *id, struct ib_uverbs_qp_attr *out)
{
    const enum sw_cm_state cm = id->cm.state;
    const bool knows_peer = cm == SW_CM_REQ_RCVD || cm == SW_CM_REP_SENT || cm == SW_CM_REP_RCVD ||
                            cm == SW_CM_ESTABLISHED;
    switch (out->qp_state) {
    case IBV_QPS_INIT:
        if (!knows_peer && cm != SW_CM_REQ_SENT)
            return -EINVAL;
        init_to_init(id, out);
        return 0;
    case IBV_QPS_RTR:
        if (!knows_peer)
            return -EINVAL;
        init_to_rtr(id, out);
        return 0;
    case IBV_QPS_RTS:
        if (!knows_peer)
            return -EINVAL;
        init_to_rts(id, out);
        return 0;
    default:
        return -EINVAL;
    }
}

int sw_ucm_init_qp_attr(struct sw_ucm_request *request)
{
    const struct rdma_ucm_init_qp_attr *in = &request->in.init_qp_attr;
    struct ib_uverbs_qp_attr response = {.qp_state = in->qp_state};
    struct sw_ucm_id *id;
    if (request->out_len < sizeof(response))
        return -ENOSPC;
    if (in->qp_state > IBV_QPS_ERR)
        return -EINVAL;
    int rc = sw_ucm_id_find_bound(request->channel, in->id, &id);
    if (rc)
        return rc;
    if (sw_ucm_is_iwarp(id)) {
        rc = sw_ucm_iwarp_init_qp_attr(id, &response);
        return rc ? rc : sw_user_write(in->response, &response, sizeof(response));
    }
    rc = id->has_cm && id->qp_type != IBV_QPT_UD ? init_connected(id, &response)
                                                 : init_unconnected(id, &response);
    return rc ? rc : sw_user_write(in->response, &response, sizeof(response));
}
