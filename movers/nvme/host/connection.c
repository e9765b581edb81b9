/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/connection.h"

#include <errno.h>
#include <string.h>

#include "nvme/host/completion.h"
#include "nvme/host/controller.h"
#include "nvme/host/machine/send.h"
#include "nvme/host/queue.h"

enum { INLINE_WANTED = 512, RETRIES = 7, RNR_RETRIES = 7 };

static bool connection_own_device(struct nvh_link *link)
{
    struct nvh_host *host = nvh_host_of(link->queue.controller);
    struct ibv_context *verbs = link->connection.id->verbs;
    if (host->pd && host->verbs != verbs) {
        nvh_queue_break(&link->queue, SW_NVME_UNREACHABLE,
                        "%s is now reached by another device than that of the memory",
                        host->controller.where);
        return false;
    }
    if (host->pd)
        return true;
    struct ibv_device_attr attr;
    if (ibv_query_device(verbs, &attr))
        return false;
    host->reads_max = attr.max_qp_rd_atom < 0 ? 0 : (uint32_t)attr.max_qp_rd_atom;
    host->verbs = verbs;
    host->pd = ibv_alloc_pd(verbs);
    return host->pd;
}

static bool connection_make_qp(struct nvh_link *link)
{
    struct mover_connection *connection = &link->connection;
    const uint32_t sends_max = nvh_sends_max(&link->queue);
    if (!mover_connection_queue(connection, sends_max + link->receives_max))
        return false;
    struct ibv_pd *pd = nvh_host_of(link->queue.controller)->pd;
    struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = sends_max,
                                            .max_recv_wr = link->receives_max,
                                            .max_send_sge = 2,
                                            .max_recv_sge = 1}};
    /* As much inline as the device gives: the SQE at least, if it can. */
    static const uint32_t inline_bytes[] = {INLINE_WANTED, NVF_SQE_BYTES, 0};
    for (unsigned i = 0; i < sizeof(inline_bytes) / sizeof(*inline_bytes); i++) {
        attr.cap.max_inline_data = inline_bytes[i];
        if (mover_queue_make_qp(&connection->queue, connection->id, pd, &attr)) {
            link->qp = connection->id->qp;
            nvh_sends_init(&link->queue, inline_bytes[i]);
            nvh_prepare_sends(link);
            return true;
        }
    }
    return false;
}

bool nvh_post_receives(struct nvh_link *link)
{
    struct ibv_recv_wr wrs[NVH_BATCH], *bad;
    struct ibv_sge sges[NVH_BATCH];
    while (link->receives_missing) {
        uint32_t count = 0;
        while (count < NVH_BATCH && link->receives_missing) {
            const uint16_t index = link->missing[--link->receives_missing];
            sges[count] = (struct ibv_sge){
                .addr = (uintptr_t)link->receives + (uint64_t)index * NVH_RECEIVE_BYTES,
                .length = NVH_RECEIVE_BYTES,
                .lkey = link->memory_mr->lkey,
            };
            wrs[count] = (struct ibv_recv_wr){
                .wr_id = 1ull << 63 | index, .sg_list = &sges[count], .num_sge = 1};
            if (count)
                wrs[count - 1].next = &wrs[count];
            count++;
        }
        if (ibv_post_recv(link->qp, wrs, &bad)) {
            nvh_queue_break(&link->queue, SW_NVME_SYSTEM, "a receive cannot be posted");
            return false;
        }
    }
    return true;
}

/* The route is known: all that the connection needs is made, and the peer asked. */
static void host_request_connection(struct nvh_link *link)
{
    struct sw_nvme_queue *queue = &link->queue;
    const struct nvh_host *host = nvh_host_of(queue->controller);
    if (!connection_own_device(link) || !nvh_link_memory(link) || !connection_make_qp(link))
        return nvh_queue_break(queue, SW_NVME_SYSTEM, "the RDMA device has no room for a queue: %s",
                               strerror(errno));
    for (uint32_t i = 0; i < link->receives_max; i++)
        link->missing[i] = (uint16_t)i;
    link->receives_missing = link->receives_max;
    if (!nvh_post_receives(link))
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
        .responder_resources = (uint8_t)(host->reads_max > 255 ? 255 : host->reads_max),
        .initiator_depth = 0,
        .flow_control = 1,
        .retry_count = RETRIES,
        .rnr_retry_count = RNR_RETRIES,
    };
    if (rdma_connect(link->connection.id, &param))
        nvh_queue_break(queue, SW_NVME_SYSTEM, "connect to %s: %s", host->controller.where,
                        strerror(errno));
}

static void check_acceptance(struct nvh_link *link)
{
    struct nvf_cm_rep rep = {0};
    if (link->connection.private_bytes >= 4)
        memcpy(&rep, link->connection.private_data, 4);
    if (rep.format)
        nvh_queue_break(&link->queue, SW_NVME_PROTOCOL,
                        "%s accepts in private data of format %u, which is not known",
                        link->queue.controller->where, le16toh(rep.format));
    else
        nvh_link_up(&link->queue);
}

static void connection_explain_refusal(struct nvh_link *link)
{
    struct sw_nvme_queue *queue = &link->queue;
    const struct mover_connection *connection = &link->connection;
    const char *where = queue->controller->where;
    struct nvf_cm_rej rej = {0};
    /* IBTA Vol 1 12.6.7.2, and what iWARP has in their place */
    enum { NOBODY_LISTENS = 8, CONSUMER_DEFINED = 28 };
    const int status = connection->status;
    if ((status == CONSUMER_DEFINED || status == -ECONNRESET) &&
        connection->private_bytes >= sizeof(rej)) {
        memcpy(&rej, connection->private_data, sizeof(rej));
        nvh_queue_break(queue, SW_NVME_REFUSED, "%s refuses queue %u: %s", where, queue->qid,
                        nvf_cm_status_text(le16toh(rej.status)));
    } else if (status == NOBODY_LISTENS || status == -ECONNREFUSED) {
        nvh_queue_break(queue, SW_NVME_REFUSED,
                        "%s refuses the connection: no target listens there", where);
    } else {
        nvh_queue_break(queue, SW_NVME_REFUSED, "%s refuses the connection (reason %d)", where,
                        status);
    }
}

static void break_link(struct nvh_link *link, enum sw_nvme_status status, enum mover_event event)
{
    char text[MOVER_CONNECTION_SAID];
    mover_connection_say(&link->connection, event, link->queue.controller->where, text);
    nvh_queue_break(&link->queue, status, "%s%s", text,
                    event == MOVER_NO_DEVICE ? "; 'sidewire devices' shows those of this host"
                                             : "");
}

static void connection_take_event(struct nvh_link *link, enum mover_event event)
{
    switch (event) {
    case MOVER_NOTHING:
        return;
    case MOVER_ROUTED:
        return host_request_connection(link);
    case MOVER_UP:
        return check_acceptance(link);
    case MOVER_REJECTED:
        return connection_explain_refusal(link);
    case MOVER_NO_RDMA:
    case MOVER_NO_DEVICE:
        return break_link(link, SW_NVME_ADDRESS, event);
    case MOVER_FAULT:
    case MOVER_DEVICE_GONE:
        return break_link(link, SW_NVME_SYSTEM, event);
    case MOVER_NO_ANSWER:
        return break_link(link, SW_NVME_UNREACHABLE, event);
    case MOVER_ENDED:
        return nvh_link_ended(&link->queue);
    }
}

void nvh_connection_start(struct sw_nvme_queue *queue)
{
    struct nvh_link *link = nvh_link_of(queue);
    const struct nvh_host *host = nvh_host_of(queue->controller);
    const struct sockaddr *source =
        host->has_source ? (const struct sockaddr *)&host->source : NULL;
    connection_take_event(link,
                          mover_connection_start(&link->connection, link->epoll_fd, NULL, source,
                                                 (const struct sockaddr *)&host->address));
}

void nvh_connection_look(struct sw_nvme_queue *queue)
{
    struct nvh_link *link = nvh_link_of(queue);
    enum mover_event event;
    while (!queue->is_broken && (event = mover_connection_next(&link->connection)) != MOVER_NOTHING)
        connection_take_event(link, event);
}

void nvh_connection_end(struct sw_nvme_queue *queue)
{
    struct nvh_link *link = nvh_link_of(queue);
    mover_connection_destroy(&link->connection);
    link->qp = NULL;
}
