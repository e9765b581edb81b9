/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/rdma_connection.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "common/rdma/listener.h"
#include "nvme/target/model/admission.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/port.h"
#include "nvme/target/model/share.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/server/crowd.h"
#include "nvme/target/server/rdma_queue.h"
#include "nvme/target/server/server.h"

enum { RNR_RETRY_FOREVER = 7, DEPTH_OF_READS = 128 };

/* As the standard encodes 80 us: a host that finds no shared receive asks again then. */
enum { RNR_TIMER = 5 };

_Static_assert(NVR_QUEUES_MAX < (int)NVT_CROWD_ADDRESSES, "each may come from another address");

static void refuse_connection(struct nvr_server *server, struct rdma_cm_id *id, uint16_t status)
{
    const struct nvf_cm_rej rej = {.status = htole16(status)};
    server->refused++;
    rdma_reject(id, &rej, sizeof(rej));
    rdma_destroy_id(id);
}

static struct nvt_port *port_of(const struct nvr_server *server, const struct rdma_cm_id *listener)
{
    for (uint32_t i = 0; i < server->listener_count; i++)
        if (server->listeners[i].at.id == listener)
            return server->listeners[i].port;
    return NULL;
}

static void local_address_text(const struct sockaddr *address, char text[NVT_ADDRESS_MAX])
{
    if (getnameinfo(address, sizeof(struct sockaddr_storage), text, NVT_ADDRESS_MAX, NULL, 0,
                    NI_NUMERICHOST))
        *text = '\0';
}

/* I/O queues that the host of an admin queue may have beside it. */
static uint32_t io_queues_beside(const struct nvt_queue *queue)
{
    const struct nvt_ctrl *ctrl = queue->ctrl;
    if (queue->qid || !nvt_queue_is_proven(queue) || ctrl->is_ending ||
        ctrl->subsystem->is_discovery)
        return 0;
    return ctrl->subsystem->queues_max;
}

/* What it may have in its thread's completion queue, receives included. */
static uint32_t completions_of(uint32_t depth)
{
    return 3 * depth + 2 * NVR_SPARE_SLOTS + NVF_SGL_MAX;
}

static bool has_proven(const struct nvr_queue *queue)
{
    return nvt_queue_is_proven(&queue->queue) || (queue->is_expected && queue->queue.has_proven);
}

static void count_queues(const struct nvr_server *server, const struct nvr_thread *thread,
                         struct nvt_crowd *crowd)
{
    for (uint32_t i = 0; i < NVR_QUEUES_MAX; i++) {
        struct nvr_queue *queue = server->queues[i];
        if (!queue)
            continue;
        const struct nvt_guest guest = {
            .address = queue->queue.host_address,
            .entries = queue->depth,
            .completions = queue->thread == thread ? completions_of(queue->depth) : 0,
            .io_queues_max = io_queues_beside(&queue->queue),
            .since_ns = queue->created_ns,
            .is_io = queue->queue.qid,
            .is_expected = queue->is_expected,
            .is_proven = has_proven(queue),
            .is_ending = queue->is_closing || queue->is_over,
            .user = queue};
        nvt_crowd_add(crowd, &guest);
    }
}

/* Room for one more from there; one that has not proved itself may have to go for it. */
static bool is_admitted(struct nvr_server *server, struct ibv_context *verbs, const char *address,
                        const struct nvf_cm_req *req, bool *is_expected)
{
    struct nvt_crowd *crowd = malloc(sizeof(*crowd));
    struct ibv_device_attr attr;
    void *leaves;
    if (!crowd)
        return false;
    nvt_crowd_clear(crowd);
    crowd->address = address;
    crowd->entries = le16toh(req->host_sends) + 1u;
    crowd->is_io = req->qid;
    crowd->places = server->settings.queues_max;
    crowd->now_ns = server->target.now_ns;
    crowd->completions = completions_of(crowd->entries);
    crowd->completions_max = ibv_query_device(verbs, &attr) ? INT32_MAX : (uint32_t)attr.max_cqe;
    count_queues(server, nvr_thread_choose(server, le16toh(req->qid)), crowd);
    const bool is_admitted = nvt_crowd_admits(crowd, &leaves);
    *is_expected = nvt_crowd_expects(crowd);
    free(crowd);
    if (leaves)
        nvr_queue_fail(leaves);
    return is_admitted;
}

/* READs that may be under way at once: as many as the host answers and the device has. */
static uint8_t reads_of(const struct rdma_conn_param *asked, struct ibv_context *verbs)
{
    struct ibv_device_attr attr;
    int reads = asked->initiator_depth;
    if (!ibv_query_device(verbs, &attr) && reads > attr.max_qp_init_rd_atom)
        reads = attr.max_qp_init_rd_atom;
    return (uint8_t)(reads < DEPTH_OF_READS ? reads : DEPTH_OF_READS);
}

/* rdma_cm says nothing of the time, which then is 655 ms. Where it cannot be set, it stays so. */
static void ask_soon(const struct nvr_queue *queue)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .min_rnr_timer = RNR_TIMER};
    (void)ibv_modify_qp(queue->qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER);
}

static void rdma_connection_take_request(struct nvr_server *server,
                                         const struct mover_arrival *request)
{
    struct rdma_cm_id *id = request->id;
    struct nvt_port *port = port_of(server, request->listen_id);
    struct nvf_cm_req req;
    char host_address[NVT_ADDRESS_MAX];
    bool is_expected;
    id->context = NULL;
    if (!port)
        return refuse_connection(server, id, NVF_CM_RESOURCES);
    if (request->param.private_data_len < sizeof(req))
        return refuse_connection(server, id, NVF_CM_LENGTH);
    memcpy(&req, request->private_data, sizeof(req));
    const uint8_t reads = reads_of(&request->param, id->verbs);
    if (!reads)
        return refuse_connection(server, id, NVF_CM_IRD);
    const uint16_t status = nvr_queue_check(&req);
    if (status) /* before anybody has to go for it */
        return refuse_connection(server, id, status);
    nvt_crowd_address(rdma_get_peer_addr(id), host_address, sizeof(host_address));
    if (!is_admitted(server, id->verbs, host_address, &req, &is_expected))
        return refuse_connection(server, id, NVF_CM_RESOURCES);
    struct nvr_queue *queue = nvr_queue_create(server, port, id, &req);
    if (!queue)
        return refuse_connection(server, id, NVF_CM_RESOURCES);
    queue->is_expected = is_expected;
    id->context = queue;
    local_address_text(rdma_get_local_addr(id), queue->queue.local_address);
    memcpy(queue->queue.host_address, host_address, sizeof(host_address));
    const struct nvf_cm_rep rep = {.controller_receives = htole16((uint16_t)queue->depth)};
    struct rdma_conn_param param = {.private_data = &rep,
                                    .private_data_len = sizeof(rep),
                                    .initiator_depth = reads,
                                    .rnr_retry_count = RNR_RETRY_FOREVER};
    const bool is_accepted = !rdma_accept(id, &param);
    if (is_accepted && queue->receives->srq)
        ask_soon(queue);
    if (!is_accepted) /* the host has gone already, or the queue pair refuses */
        nvr_queue_end(queue);
    else
        server->connected++;
}

static bool is_of_listener(struct nvr_server *server, const struct mover_arrival *arrival)
{
    bool any = false;
    for (uint32_t i = 0; i < server->listener_count && !any; i++)
        any = mover_listener_take(&server->listeners[i].at, arrival);
    return any;
}

void nvr_connection_event(struct nvr_server *server, const struct mover_arrival *arrival)
{
    if (is_of_listener(server, arrival))
        return;
    struct nvr_queue *queue =
        arrival->type == RDMA_CM_EVENT_CONNECT_REQUEST ? NULL : arrival->id->context;
    switch (arrival->type) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        rdma_connection_take_request(server, arrival);
        break;
    case RDMA_CM_EVENT_ESTABLISHED:
        if (queue)
            queue->is_established = true;
        break;
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        if (queue) {
            nvr_transport.cut(&queue->queue);
            queue->close_by_ns = 0; /* nobody waits for answers */
        }
        break;
    case RDMA_CM_EVENT_ADDR_RESOLVED:
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
    case RDMA_CM_EVENT_MULTICAST_JOIN:
    case RDMA_CM_EVENT_MULTICAST_ERROR:
    case RDMA_CM_EVENT_ADDR_CHANGE:
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        break;
    }
}
