/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/connections/incoming.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

#include "device/nic/netdev.h"
#include "rdmacm/connections/event.h"
#include "rdmacm/connections/farewell.h"
#include "rdmacm/connections/route.h"
#include "rdmacm/connections/service.h"
#include "rdmacm/lock.h"

/* The listener that a request was accepted for; its event follows at once. */
static struct sw_ucm_id *asked;

static uint8_t qp_type_of(const struct sw_cm_message *message)
{
    if (message->attribute == SW_CM_SIDR_REQ)
        return IBV_QPT_UD;
    switch ((enum sw_cm_service)message->req.service) {
    case SW_CM_RC:
        return IBV_QPT_RC;
    case SW_CM_UC:
        return IBV_QPT_UC;
    case SW_CM_EXTENDED:
        return IBV_QPT_XRC_RECV;
    case SW_CM_RD:
        break;
    }
    return 0xff;
}

static void incoming_set_address(union sw_address *out, const struct sw_cm_ip_header *header,
                                 const uint8_t address[16], uint16_t port, uint32_t ifindex)
{
    memset(out, 0, sizeof(*out));
    if (header->ip_version == 4) {
        out->in.sin_family = AF_INET;
        memcpy(&out->in.sin_addr, address + 12, 4);
    } else {
        out->in6.sin6_family = AF_INET6;
        memcpy(&out->in6.sin6_addr, address, 16);
        if (sw_address_is_link_local(out))
            out->in6.sin6_scope_id = ifindex;
    }
    sw_address_set_port(out, port);
}

/* The two addresses of a request: of its header, or for AF_IB the GIDs of its path. */
static bool read_addresses(int family, const struct sw_cm_path *path,
                           const struct sw_cm_message *message, union sw_address *src,
                           union sw_address *dst)
{
    const bool is_sidr = message->attribute == SW_CM_SIDR_REQ;
    const uint8_t *data = is_sidr ? message->sidr_req.private_data : message->req.private_data;
    uint64_t service_id = is_sidr ? message->sidr_req.service_id : message->req.service_id;
    struct sw_cm_ip_header header;
    if (family == AF_IB) {
        *src = (union sw_address){.ib = {.family = AF_IB,
                                         .pkey = htobe16(0xffff),
                                         .sid = htobe64(service_id),
                                         .sid_mask = UINT64_MAX}};
        *dst = (union sw_address){.ib = {.family = AF_IB, .pkey = htobe16(0xffff)}};
        memcpy(src->ib.gid, path->local_gid, 16);
        memcpy(dst->ib.gid, path->remote_gid, 16);
        return true;
    }
    if (!sw_cm_ip_header_decode(data, &header))
        return false;
    incoming_set_address(src, &header, header.dst_addr, (uint16_t)service_id, path->ifindex);
    incoming_set_address(dst, &header, header.src_addr, header.src_port, path->ifindex);
    return true;
}

/* Whether a listener is meant, and how well: 2, by its address; 1, by a wildcard; 0, not. */
static int listener_fit(const struct sw_ucm_id *listener, const union sw_address *address)
{
    const union sw_address *own = &listener->src;
    if (sw_address_is_same_host(own, address))
        return 2;
    if (!sw_address_is_any(own))
        return 0;
    return own->family == address->family ||
           (own->family == AF_INET6 && address->family == AF_INET &&
            !listener->address_family_only);
}

static struct sw_ucm_id *find_listener(struct sw_ucm_id *listeners, const struct sw_cm_path *path,
                                       const struct sw_cm_message *message, union sw_address *src,
                                       union sw_address *dst)
{
    struct sw_ucm_id *found = NULL;
    int best = 0;
    for (struct sw_ucm_id *at = listeners; at; at = at->service_next) {
        union sw_address theirs[2];
        if (at->state != SW_UCM_LISTEN ||
            !read_addresses(at->src.family, path, message, &theirs[0], &theirs[1]) ||
            listener_fit(at, &theirs[0]) <= best)
            continue;
        best = listener_fit(at, &theirs[0]);
        found = at;
        *src = theirs[0];
        *dst = theirs[1];
    }
    return found;
}

static void incoming_take_request(struct sw_ucm_id *id, const struct sw_cm_req *req)
{
    id->route.mtu = req->path_mtu;
    id->route.flow_label = req->primary.flow_label;
    id->route.traffic_class = req->primary.traffic_class;
    id->route.hop_limit = req->primary.hop_limit;
    id->route.sl = req->primary.sl;
    if (req->primary.local_ack_timeout)
        id->route.packet_life_time = (uint8_t)(req->primary.local_ack_timeout - 1);
    id->remote_qpn = req->local_qpn;
    id->remote_psn = req->starting_psn;
    id->path_mtu = req->path_mtu;
    id->ack_timeout = req->primary.local_ack_timeout;
    id->retry_count = req->retry_count;
    id->rnr_retry_count = req->rnr_retry_count;
    id->responder_resources = req->initiator_depth;
    id->initiator_depth = req->responder_resources;
}

static int brings_id(const struct sw_ucm_event *event, const void *id)
{
    return event->request == id;
}

/* As if the request had been lost. */
static void push_out(struct sw_ucm_id *listener, struct sw_ucm_id *request)
{
    free(sw_ucm_channel_take(listener->channel, brings_id, request));
    request->request = NULL;
    sw_cm_drop(&sw_ucm_machine, &request->cm);
    sw_ucm_id_destroy(request);
    listener->backlog++;
}

/* A listener whose backlog is full has room for an address that asks less than others: the latest
 * request goes of the address that has most of them waiting. */
static void incoming_make_room(struct sw_ucm_id *listener, const struct sw_cm_path *path)
{
    const struct sw_cm *cm = &sw_ucm_machine;
    struct sw_ucm_id *last = NULL;
    uint32_t most = sw_cm_asking_from(cm, path) + 1;
    if (2 * most > cm->asking_count)
        return; /* nobody asks more */
    for (struct sw_ucm_event *at = listener->channel->first; at; at = at->next) {
        if (at->id != listener || !at->request)
            continue;
        uint32_t count = sw_cm_asking_from(cm, &at->request->cm.path);
        if (count > most || (last && count == most)) {
            most = count;
            last = at->request;
        }
    }
    if (last)
        push_out(listener, last);
}

struct sw_cm_id *sw_ucm_incoming(struct sw_ucm_id *listeners, const struct sw_cm_path *path,
                                 const struct sw_cm_message *message, uint16_t *reason)
{
    sw_rdmacm_assert_locked();
    union sw_address src, dst;
    struct sw_ucm_id *listener = find_listener(listeners, path, message, &src, &dst);
    const bool is_sidr = message->attribute == SW_CM_SIDR_REQ;
    *reason = is_sidr ? SW_CM_SIDR_UNSUPPORTED : SW_CM_REASON_SERVICE_ID;
    if (!listener)
        return NULL;
    const uint8_t qp_type = qp_type_of(message);
    *reason = is_sidr ? SW_CM_SIDR_REJECTED : SW_CM_REASON_CONSUMER;
    if (listener->qp_type && listener->qp_type != qp_type)
        return NULL;
    struct sw_ucm_id *id;
    *reason = 0; /* no room now: the peer asks again */
    if (!listener->backlog)
        incoming_make_room(listener, path);
    if (!listener->backlog ||
        sw_ucm_id_create(listener->channel, listener->port_space, qp_type, &id))
        return NULL;
    id->src = src;
    id->dst = dst;
    if (sw_ucm_route_arrive(id, path)) {
        sw_ucm_id_destroy(id);
        *reason = is_sidr ? SW_CM_SIDR_REJECTED : SW_CM_REASON_CONSUMER;
        return NULL;
    }
    if (!is_sidr)
        incoming_take_request(id, &message->req);
    id->has_path = !is_sidr;
    id->has_cm = true;
    id->state = SW_UCM_CONNECT;
    listener->backlog--;
    asked = listener;
    return &id->cm;
}

/* The program's part of the private data behind the header of the IP CM service. */
static void copy_private(uint8_t *out, uint8_t *out_len, const struct sw_ucm_id *listener,
                         const uint8_t *data, size_t len)
{
    size_t skip = listener->src.family == AF_IB ? 0 : SW_CM_IP_HEADER_BYTES;
    memcpy(out, data + skip, len - skip);
    *out_len = (uint8_t)(len - skip);
}

static void incoming_tell_request(struct sw_ucm_id *id, const struct sw_cm_message *message)
{
    struct sw_ucm_id *listener = asked;
    struct sw_ucm_event *event = sw_ucm_event_new(listener, SW_UCM_CONNECT_REQUEST_EVENT, 0);
    asked = NULL;
    if (!event) {
        listener->backlog++;
        sw_ucm_id_destroy(id);
        return;
    }
    event->response.id = id->handle;
    event->request = id;
    id->request = event;
    if (message->attribute == SW_CM_SIDR_REQ) {
        struct rdma_ucm_ud_param *ud = &event->response.param.ud;
        copy_private(ud->private_data, &ud->private_data_len, listener,
                     message->sidr_req.private_data, SW_CM_SIDR_REQ_PRIVATE);
    } else {
        struct rdma_ucm_conn_param *conn = &event->response.param.conn;
        const struct sw_cm_req *req = &message->req;
        copy_private(conn->private_data, &conn->private_data_len, listener, req->private_data,
                     SW_CM_REQ_PRIVATE);
        conn->responder_resources = req->initiator_depth;
        conn->initiator_depth = req->responder_resources;
        conn->flow_control = req->flow_control;
        conn->retry_count = req->retry_count;
        conn->rnr_retry_count = req->rnr_retry_count;
        conn->srq = req->srq;
        conn->qp_num = req->local_qpn;
        event->response.ece.vendor_id = req->vendor_id;
        event->response.ece.attr_mod = req->ece_options;
    }
    sw_ucm_channel_push(listener->channel, event);
}

static void tell_reply(struct sw_ucm_id *id, const struct sw_cm_rep *rep)
{
    id->remote_qpn = id->qp_type == IBV_QPT_XRC_SEND ? rep->local_eecn : rep->local_qpn;
    id->remote_psn = rep->starting_psn;
    id->responder_resources = rep->initiator_depth;
    id->initiator_depth = rep->responder_resources;
    id->rnr_retry_count = rep->rnr_retry_count;
    id->ack_timeout = sw_ucm_service_ack_timeout(rep->target_ack_delay, id->route.packet_life_time);
    struct sw_ucm_event *event = sw_ucm_event_new(id, SW_UCM_CONNECT_RESPONSE_EVENT, 0);
    if (!event)
        return;
    struct rdma_ucm_conn_param *conn = &event->response.param.conn;
    memcpy(conn->private_data, rep->private_data, SW_CM_REP_PRIVATE);
    conn->private_data_len = SW_CM_REP_PRIVATE;
    conn->responder_resources = rep->initiator_depth;
    conn->initiator_depth = rep->responder_resources;
    conn->flow_control = rep->flow_control;
    conn->rnr_retry_count = rep->rnr_retry_count;
    conn->srq = rep->srq;
    conn->qp_num = id->remote_qpn;
    event->response.ece.vendor_id = rep->vendor_id;
    event->response.ece.attr_mod = rep->ece_options;
    sw_ucm_event_send(event);
}

/* Without a message: the peer's process is gone. */
static void tell_reject(struct sw_ucm_id *id, const struct sw_cm_message *message)
{
    int reason = message ? message->rej.reason : SW_CM_REASON_TIMEOUT;
    struct sw_ucm_event *event = sw_ucm_event_new(id, SW_UCM_REJECTED_EVENT, reason);
    if (!event)
        return;
    if (message)
        memcpy(event->response.param.conn.private_data, message->rej.private_data,
               SW_CM_REJ_PRIVATE);
    event->response.param.conn.private_data_len = SW_CM_REJ_PRIVATE;
    sw_ucm_event_send(event);
}

static void tell_datagram_peer(struct sw_ucm_id *id, const struct sw_cm_sidr_rep *rep)
{
    enum sw_ucm_event_type type = SW_UCM_ESTABLISHED_EVENT;
    int status = rep->status;
    if (status)
        type = SW_UCM_UNREACHABLE_EVENT;
    else if ((status = sw_ucm_service_set_qkey(id, rep->qkey)))
        type = SW_UCM_ADDR_ERROR_EVENT;
    struct sw_ucm_event *event = sw_ucm_event_new(id, type, status);
    if (!event)
        return;
    struct rdma_ucm_ud_param *ud = &event->response.param.ud;
    memcpy(ud->private_data, rep->private_data, SW_CM_SIDR_REP_PRIVATE);
    ud->private_data_len = SW_CM_SIDR_REP_PRIVATE;
    if (!status) {
        ud->qp_num = rep->qpn;
        ud->qkey = rep->qkey;
        sw_ucm_event_address(id, id->route.dgid, &ud->ah_attr);
        event->response.ece.vendor_id = rep->vendor_id;
        event->response.ece.attr_mod = rep->ece_options;
    }
    sw_ucm_event_send(event);
}

static void tell_disconnect(struct sw_ucm_id *id, int status)
{
    id->state = SW_UCM_DISCONNECT;
    if (status)
        sw_ucm_event_tell(id, SW_UCM_DISCONNECTED_EVENT, status);
    else
        sw_ucm_farewell_hear(id);
}

static void tell_timeout(struct sw_ucm_id *id, enum sw_cm_attribute about)
{
    if (about == SW_CM_DREQ)
        tell_disconnect(id, -ETIMEDOUT);
    else
        sw_ucm_event_tell(id, SW_UCM_UNREACHABLE_EVENT, -ETIMEDOUT);
}

void sw_ucm_outcome(struct sw_ucm_id *id, const struct sw_cm_event *event)
{
    sw_rdmacm_assert_locked();
    const bool is_exit = event->kind == SW_CM_EVENT_EXIT;
    if (id->state != (is_exit ? SW_UCM_DISCONNECT : SW_UCM_CONNECT))
        return;
    switch (event->kind) {
    case SW_CM_EVENT_REQ:
    case SW_CM_EVENT_SIDR_REQ:
        incoming_tell_request(id, event->message);
        break;
    case SW_CM_EVENT_REP:
        tell_reply(id, &event->message->rep);
        break;
    case SW_CM_EVENT_RTU:
        sw_ucm_event_tell(id, SW_UCM_ESTABLISHED_EVENT, 0);
        break;
    case SW_CM_EVENT_REJ:
        tell_reject(id, event->message);
        break;
    case SW_CM_EVENT_TIMEOUT:
        tell_timeout(id, event->about);
        break;
    case SW_CM_EVENT_DREQ:
    case SW_CM_EVENT_DREP:
        tell_disconnect(id, 0);
        break;
    case SW_CM_EVENT_EXIT:
        sw_ucm_farewell_finish(id);
        sw_ucm_event_tell(id, SW_UCM_TIMEWAIT_EXIT_EVENT, 0);
        break;
    case SW_CM_EVENT_SIDR_REP:
        tell_datagram_peer(id, &event->message->sidr_rep);
        break;
    case SW_CM_EVENT_MRA:
    case SW_CM_EVENT_STALE: /* a DREP or a timeout follows */
        break;
    case SW_CM_EVENT_COUNT:
        assert(event->kind < SW_CM_EVENT_COUNT);
    }
}
