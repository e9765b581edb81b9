/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connection of a queue: a machine that rdma_cm's events drive, so that nobody waits in it.
 * Source: NVMe RDMA Transport 1.0, 3.2 (private data).
 */
#include "nvme/host/host.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>

#include "common/rdma/absent.h"

enum { RESOLVE_MS = 2000, INLINE_WANTED = 512, RETRIES = 7, RNR_RETRIES = 7 };

static bool host_watch_fd(struct sw_nvme_queue *queue, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && !fcntl(fd, F_SETFL, flags | O_NONBLOCK) &&
           !epoll_ctl(queue->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static void fail_link(struct sw_nvme_queue *queue)
{
    queue->connection.link = NVH_LINK_FAILED;
}

bool nvh_link_start(struct sw_nvme_queue *queue, uint64_t now_ns)
{
    struct sw_nvme_controller *c = queue->controller;
    struct nvh_connection *link = &queue->connection;
    *link = (struct nvh_connection){.link = NVH_LINK_ADDRESS};
    queue->link_deadline_ns = now_ns + c->options.connect_timeout_ms * NVH_MS;
    link->events = rdma_create_event_channel();
    if (!link->events) {
        nvh_queue_break(queue, SW_NVME_ADDRESS,
                        "there is no RDMA device (%s); a software one: sidewire run",
                        strerror(errno));
        return false;
    }
    if (!host_watch_fd(queue, link->events->fd) ||
        rdma_create_id(link->events, &link->id, NULL, RDMA_PS_TCP)) {
        nvh_queue_break(queue, SW_NVME_SYSTEM, "no connection can be made: %s", strerror(errno));
        return false;
    }
    struct sockaddr *source = c->has_source ? (struct sockaddr *)&c->source : NULL;
    if (rdma_resolve_addr(link->id, source, (struct sockaddr *)&c->address, RESOLVE_MS)) {
        nvh_queue_break(queue, SW_NVME_ADDRESS, "no RDMA device leads to %s: %s", c->where,
                        strerror(errno));
        return false;
    }
    return true;
}

static bool connection_own_device(struct sw_nvme_queue *queue)
{
    struct sw_nvme_controller *c = queue->controller;
    struct ibv_context *verbs = queue->connection.id->verbs;
    if (c->pd && c->verbs != verbs) {
        nvh_queue_break(queue, SW_NVME_UNREACHABLE,
                        "%s is now reached by another device than that of the memory", c->where);
        return false;
    }
    if (c->pd)
        return true;
    struct ibv_device_attr attr;
    if (ibv_query_device(verbs, &attr))
        return false;
    c->reads_max = attr.max_qp_rd_atom < 0 ? 0 : (uint32_t)attr.max_qp_rd_atom;
    c->verbs = verbs;
    c->pd = ibv_alloc_pd(verbs);
    return c->pd;
}

static bool connection_make_qp(struct sw_nvme_queue *queue)
{
    struct nvh_connection *link = &queue->connection;
    queue->sends_max = 2 * queue->size + NVH_BATCH;
    const int cqe = (int)(queue->sends_max + queue->receives_max);
    link->channel = ibv_create_comp_channel(link->id->verbs);
    if (!link->channel || !host_watch_fd(queue, link->channel->fd))
        return false;
    link->cq = ibv_create_cq(link->id->verbs, cqe, queue, link->channel, 0);
    if (!link->cq)
        return false;
    struct ibv_qp_init_attr attr = {
        .send_cq = link->cq,
        .recv_cq = link->cq,
        .cap = {.max_send_wr = queue->sends_max,
                .max_recv_wr = queue->receives_max,
                .max_send_sge = 2,
                .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    /* As much inline as the device gives: the SQE at least, if it can. */
    static const uint32_t inline_bytes[] = {INLINE_WANTED, NVF_SQE_BYTES, 0};
    for (unsigned i = 0; i < sizeof(inline_bytes) / sizeof(*inline_bytes); i++) {
        attr.cap.max_inline_data = inline_bytes[i];
        if (!rdma_create_qp(link->id, queue->controller->pd, &attr)) {
            link->qp = link->id->qp;
            link->inline_bytes = inline_bytes[i];
            return true;
        }
    }
    return false;
}

bool nvh_post_receives(struct sw_nvme_queue *queue)
{
    struct ibv_recv_wr wrs[NVH_BATCH], *bad;
    struct ibv_sge sges[NVH_BATCH];
    while (queue->receives_missing) {
        uint32_t count = 0;
        while (count < NVH_BATCH && queue->receives_missing) {
            const uint16_t index = queue->missing[--queue->receives_missing];
            sges[count] = (struct ibv_sge){
                .addr = (uintptr_t)queue->receives + (uint64_t)index * NVH_RECEIVE_BYTES,
                .length = NVH_RECEIVE_BYTES,
                .lkey = queue->memory_mr->lkey,
            };
            wrs[count] = (struct ibv_recv_wr){
                .wr_id = 1ull << 63 | index, .sg_list = &sges[count], .num_sge = 1};
            if (count)
                wrs[count - 1].next = &wrs[count];
            count++;
        }
        if (ibv_post_recv(queue->connection.qp, wrs, &bad)) {
            nvh_queue_break(queue, SW_NVME_SYSTEM, "a receive cannot be posted");
            return false;
        }
    }
    return true;
}

/* The route is known: all that the connection needs is made, and the peer asked. */
static void host_request_connection(struct sw_nvme_queue *queue)
{
    struct sw_nvme_controller *c = queue->controller;
    struct nvh_connection *link = &queue->connection;
    if (!connection_own_device(queue) || !nvh_queue_memory(queue) || !connection_make_qp(queue)) {
        nvh_queue_break(queue, SW_NVME_SYSTEM, "the RDMA device has no room for a queue: %s",
                        strerror(errno));
        fail_link(queue);
        return;
    }
    for (uint32_t i = 0; i < queue->receives_max; i++)
        queue->missing[i] = (uint16_t)i;
    queue->receives_missing = queue->receives_max;
    queue->sends_posted = queue->sends_retired = queue->unsignaled = 0;
    queue->sending.head = queue->sending.tail = 0;
    queue->list.count = 0;
    queue->list.is_inline = true;
    queue->sq_head = queue->sq_tail = 0;
    if (!nvh_post_receives(queue))
        return fail_link(queue);
    const struct nvf_cm_req req = {
        .qid = htole16(queue->qid),
        .host_receives = htole16((uint16_t)queue->size),
        .host_sends = htole16((uint16_t)(queue->size - 1)),
        .cntlid = htole16(queue->qid ? queue->cntlid : 0xffff),
    };
    struct rdma_conn_param param = {
        .private_data = &req,
        .private_data_len = sizeof(req),
        .responder_resources = (uint8_t)(c->reads_max > 255 ? 255 : c->reads_max),
        .initiator_depth = 0,
        .flow_control = 1,
        .retry_count = RETRIES,
        .rnr_retry_count = RNR_RETRIES,
    };
    if (rdma_connect(link->id, &param)) {
        nvh_queue_break(queue, SW_NVME_SYSTEM, "connect to %s: %s", c->where, strerror(errno));
        return fail_link(queue);
    }
    link->link = NVH_LINK_ACCEPT;
}

static void check_acceptance(struct sw_nvme_queue *queue, const struct rdma_conn_param *param)
{
    struct nvf_cm_rep rep = {0};
    if (param->private_data_len >= 4 && param->private_data)
        memcpy(&rep, param->private_data, 4);
    if (rep.format) {
        nvh_queue_break(queue, SW_NVME_PROTOCOL,
                        "%s accepts in private data of format %u, which is not known",
                        queue->controller->where, le16toh(rep.format));
        return fail_link(queue);
    }
    queue->connection.link = NVH_LINK_UP;
    queue->connection.was_up = true;
}

static void connection_explain_refusal(struct sw_nvme_queue *queue,
                                       const struct rdma_cm_event *event)
{
    const struct rdma_conn_param *param = &event->param.conn;
    struct nvf_cm_rej rej = {0};
    enum { CONSUMER_DEFINED = 28 };
    if (event->status == CONSUMER_DEFINED && param->private_data_len >= sizeof(rej)) {
        memcpy(&rej, param->private_data, sizeof(rej));
        nvh_queue_break(queue, SW_NVME_REFUSED, "%s refuses queue %u: %s", queue->controller->where,
                        queue->qid, nvf_cm_status_text(le16toh(rej.status)));
    } else {
        nvh_queue_break(queue, SW_NVME_REFUSED,
                        "%s refuses the connection (reason %d): is a target listening there?",
                        queue->controller->where, event->status);
    }
    fail_link(queue);
}

static void connection_handle_event(struct sw_nvme_queue *queue, const struct rdma_cm_event *event)
{
    struct nvh_connection *link = &queue->connection;
    const char *where = queue->controller->where;
    switch (event->event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        link->link = NVH_LINK_ROUTE;
        if (rdma_resolve_route(link->id, RESOLVE_MS)) {
            nvh_queue_break(queue, SW_NVME_ADDRESS, "no route to %s: %s", where, strerror(errno));
            fail_link(queue);
        }
        return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        return host_request_connection(queue);
    case RDMA_CM_EVENT_ESTABLISHED:
        return check_acceptance(queue, &event->param.conn);
    case RDMA_CM_EVENT_REJECTED:
        return connection_explain_refusal(queue, event);
    case RDMA_CM_EVENT_ADDR_ERROR:
        if (mover_is_absent(event))
            nvh_queue_break(queue, SW_NVME_UNREACHABLE, "nobody answers at %s", where);
        else
            nvh_queue_break(queue, SW_NVME_ADDRESS, "no RDMA device leads to %s: %s", where,
                            strerror(-event->status));
        return fail_link(queue);
    case RDMA_CM_EVENT_ROUTE_ERROR:
        nvh_queue_break(queue, SW_NVME_ADDRESS, "no route to %s: %s", where,
                        strerror(-event->status));
        return fail_link(queue);
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_CONNECT_ERROR:
        nvh_queue_break(queue, SW_NVME_UNREACHABLE, "%s does not answer", where);
        return fail_link(queue);
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        nvh_auth_cut(queue);
        nvh_queue_break(queue, SW_NVME_UNREACHABLE, "%s has ended the connection of queue %u",
                        where, queue->qid);
        return fail_link(queue);
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        nvh_queue_break(queue, SW_NVME_SYSTEM, "the RDMA device is gone");
        return fail_link(queue);
    case RDMA_CM_EVENT_CONNECT_REQUEST:
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
    case RDMA_CM_EVENT_MULTICAST_JOIN:
    case RDMA_CM_EVENT_MULTICAST_ERROR:
    case RDMA_CM_EVENT_ADDR_CHANGE:
        return;
    }
}

void nvh_link_step(struct sw_nvme_queue *queue)
{
    struct rdma_cm_event *event;
    while (queue->connection.link != NVH_LINK_FAILED && queue->connection.events &&
           !rdma_get_cm_event(queue->connection.events, &event)) {
        connection_handle_event(queue, event);
        rdma_ack_cm_event(event);
    }
}

void nvh_link_destroy(struct sw_nvme_queue *queue)
{
    struct nvh_connection *link = &queue->connection;
    nvh_auth_stop(queue);
    if (link->id && link->was_up)
        rdma_disconnect(link->id);
    if (link->qp)
        rdma_destroy_qp(link->id);
    if (link->cq) {
        struct ibv_cq *cq;
        void *context;
        while (!ibv_get_cq_event(link->channel, &cq, &context))
            link->channel_events++;
        if (link->channel_events)
            ibv_ack_cq_events(link->cq, link->channel_events);
        ibv_destroy_cq(link->cq);
    }
    if (link->channel)
        ibv_destroy_comp_channel(link->channel);
    if (link->id)
        rdma_destroy_id(link->id);
    if (link->events)
        rdma_destroy_event_channel(link->events);
    *link = (struct nvh_connection){.link = NVH_LINK_NONE};
}
