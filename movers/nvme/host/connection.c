/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/connection.h"

#include <errno.h>
#include <string.h>

#include "common/time/clock.h"
#include "nvme/host/authenticate.h"
#include "nvme/host/controller.h"
#include "nvme/host/queue.h"
#include "nvme/host/send.h"

enum { INLINE_WANTED = 512, RETRIES = 7, RNR_RETRIES = 7 };

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
    struct mover_connection *connection = &queue->connection;
    queue->sends_max = 2 * queue->size + NVH_BATCH;
    if (!mover_connection_queue(connection, queue->sends_max + queue->receives_max))
        return false;
    struct ibv_qp_init_attr attr = {
        .send_cq = connection->queue.cq,
        .recv_cq = connection->queue.cq,
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
        if (!rdma_create_qp(connection->id, queue->controller->pd, &attr)) {
            queue->qp = connection->id->qp;
            queue->inline_bytes = inline_bytes[i];
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
        if (ibv_post_recv(queue->qp, wrs, &bad)) {
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
    if (!connection_own_device(queue) || !nvh_queue_memory(queue) || !connection_make_qp(queue))
        return nvh_queue_break(queue, SW_NVME_SYSTEM, "the RDMA device has no room for a queue: %s",
                               strerror(errno));
    for (uint32_t i = 0; i < queue->receives_max; i++)
        queue->missing[i] = (uint16_t)i;
    queue->receives_missing = queue->receives_max;
    queue->sends_posted = queue->sends_retired = queue->unsignaled = 0;
    queue->sending.head = queue->sending.tail = 0;
    queue->list.count = 0;
    queue->list.is_inline = true;
    queue->sq_head = queue->sq_tail = 0;
    if (!nvh_post_receives(queue))
        return;
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
    if (rdma_connect(queue->connection.id, &param))
        nvh_queue_break(queue, SW_NVME_SYSTEM, "connect to %s: %s", c->where, strerror(errno));
}

static void check_acceptance(struct sw_nvme_queue *queue)
{
    struct nvf_cm_rep rep = {0};
    if (queue->connection.private_bytes >= 4)
        memcpy(&rep, queue->connection.private_data, 4);
    if (rep.format)
        nvh_queue_break(queue, SW_NVME_PROTOCOL,
                        "%s accepts in private data of format %u, which is not known",
                        queue->controller->where, le16toh(rep.format));
}

static void connection_explain_refusal(struct sw_nvme_queue *queue)
{
    const struct mover_connection *connection = &queue->connection;
    const char *where = queue->controller->where;
    struct nvf_cm_rej rej = {0};
    enum { NOBODY_LISTENS = 8, CONSUMER_DEFINED = 28 }; /* IBTA Vol 1 12.6.7.2 */
    if (connection->status == CONSUMER_DEFINED && connection->private_bytes >= sizeof(rej)) {
        memcpy(&rej, connection->private_data, sizeof(rej));
        nvh_queue_break(queue, SW_NVME_REFUSED, "%s refuses queue %u: %s", where, queue->qid,
                        nvf_cm_status_text(le16toh(rej.status)));
    } else if (connection->status == NOBODY_LISTENS) {
        nvh_queue_break(queue, SW_NVME_REFUSED,
                        "%s refuses the connection: no target listens there", where);
    } else {
        nvh_queue_break(queue, SW_NVME_REFUSED, "%s refuses the connection (reason %d)", where,
                        connection->status);
    }
}

static void break_link(struct sw_nvme_queue *queue, enum sw_nvme_status status,
                       enum mover_event event)
{
    char text[MOVER_CONNECTION_SAID];
    mover_connection_say(&queue->connection, event, queue->controller->where, text);
    nvh_queue_break(queue, status, "%s", text);
}

static void connection_take_event(struct sw_nvme_queue *queue, enum mover_event event)
{
    switch (event) {
    case MOVER_NOTHING:
        return;
    case MOVER_ROUTED:
        return host_request_connection(queue);
    case MOVER_UP:
        return check_acceptance(queue);
    case MOVER_REJECTED:
        return connection_explain_refusal(queue);
    case MOVER_NO_RDMA:
    case MOVER_NO_DEVICE:
        return break_link(queue, SW_NVME_ADDRESS, event);
    case MOVER_FAULT:
    case MOVER_DEVICE_GONE:
        return break_link(queue, SW_NVME_SYSTEM, event);
    case MOVER_NO_ANSWER:
        return break_link(queue, SW_NVME_UNREACHABLE, event);
    case MOVER_ENDED:
        nvh_auth_cut(queue);
        return nvh_queue_break(queue, SW_NVME_UNREACHABLE,
                               "%s has ended the connection of queue %u", queue->controller->where,
                               queue->qid);
    }
}

bool nvh_link_start(struct sw_nvme_queue *queue, uint64_t now_ns)
{
    const struct sw_nvme_controller *c = queue->controller;
    const struct sockaddr *source = c->has_source ? (const struct sockaddr *)&c->source : NULL;
    queue->link_deadline_ns = now_ns + c->options.connect_timeout_ms * NS_PER_MS;
    connection_take_event(queue,
                          mover_connection_start(&queue->connection, queue->epoll_fd, NULL, source,
                                                 (const struct sockaddr *)&c->address));
    return !queue->is_broken;
}

void nvh_link_step(struct sw_nvme_queue *queue)
{
    enum mover_event event;
    while (!queue->is_broken &&
           (event = mover_connection_next(&queue->connection)) != MOVER_NOTHING)
        connection_take_event(queue, event);
}

void nvh_link_destroy(struct sw_nvme_queue *queue)
{
    nvh_auth_stop(queue);
    mover_connection_destroy(&queue->connection);
    queue->qp = NULL;
}
