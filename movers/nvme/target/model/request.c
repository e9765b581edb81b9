/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/request.h"

#include <assert.h>
#include <string.h>

#include "nvme/target/model/authenticate.h"
#include "nvme/target/model/command.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/memory.h"
#include "nvme/target/model/namespace.h"
#include "nvme/target/model/port.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/reserve.h"
#include "nvme/target/model/subsystem.h"

static void target_run_request(struct nvt_request *request)
{
    request->command->run(request);
}

/* ---- what the host is to take ---- */

static void hand_to_host(struct nvt_request *request)
{
    if (request->is_with_host) /* its data could not be fetched */
        return;
    request->since_ns = request->queue->thread->now_ns;
    request->is_with_host = true;
    list_append(&request->queue->with_host, &request->wait);
}

static void take_from_host(struct nvt_request *request)
{
    if (!request->is_with_host)
        return;
    list_remove(&request->wait);
    request->is_with_host = false;
    request->queue->took_ns = request->queue->thread->now_ns;
}

void nvt_request_go_on(struct nvt_request *request)
{
    if (request->direction != NVT_FROM_HOST || !request->data_bytes || request->sgl.is_in_capsule)
        return target_run_request(request);
    hand_to_host(request);
    request->queue->target->transport->fetch(request);
}

/* ---- beginning ---- */

static bool is_authentication(const struct nvf_sqe *sqe)
{
    return nvf_type_of(sqe) == NVF_AUTH_SEND || nvf_type_of(sqe) == NVF_AUTH_RECEIVE;
}

static const struct nvt_command *find_command(struct nvt_request *request, uint16_t *status)
{
    const struct nvt_queue *queue = request->queue;
    const struct nvt_ctrl *ctrl = queue->ctrl;
    const bool is_fabrics = request->sqe.opcode == NVF_OPCODE;
    const struct nvt_command *command;
    *status = NVME_SC_INVALID_OPCODE | NVME_SC_DNR;
    if (is_fabrics)
        command = nvt_fabrics_command((uint8_t)nvf_type_of(&request->sqe));
    else if (!ctrl)
        command = NULL;
    else
        command = queue->qid ? nvt_io_command(request->sqe.opcode)
                             : nvt_admin_command(request->sqe.opcode);
    if (!ctrl && !(is_fabrics && nvf_type_of(&request->sqe) == NVF_CONNECT)) {
        *status = NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR;
        return NULL;
    }
    if (nvt_auth_is_due(queue) && !(is_fabrics && is_authentication(&request->sqe))) {
        *status = NVF_SPECIFIC(NVME_SC_AUTH_REQUIRED) | NVME_SC_DNR;
        return NULL;
    }
    if (!command || (ctrl && ctrl->subsystem->is_discovery && !command->in_discovery))
        return NULL;
    if (!is_fabrics && !(ctrl->csts & NVF_CSTS_READY)) {
        *status = NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR;
        return NULL;
    }
    return command;
}

/* Where the data lies: with the backend, in the capsule or in the pool. False: it waits. */
static bool place_data(struct nvt_request *request)
{
    if (request->direction == NVT_FROM_HOST && request->sgl.is_in_capsule) {
        request->data = request->in_capsule + request->sgl.offset;
        request->region = request->in_capsule_region;
        return true;
    }
    return nvt_memory_get(request);
}

static uint16_t prepare_request(struct nvt_request *request)
{
    uint16_t status;
    uint64_t bytes = 0;
    request->command = find_command(request, &status);
    if (!request->command)
        return status;
    request->direction = request->command->direction;
    status = nvf_sgl_parse(&request->sqe, request->in_capsule, request->in_capsule_bytes,
                           request->queue->port->in_capsule_bytes, &request->sgl);
    if (status)
        return status;
    if (request->command->measure) {
        status = request->command->measure(request, &bytes);
        if (status)
            return status;
    }
    if (bytes > NVT_TRANSFER_MAX)
        return NVME_SC_INVALID_FIELD | NVME_SC_DNR;
    if (request->sgl.len_bytes < bytes)
        return NVME_SC_SGL_INVALID_DATA | NVME_SC_DNR;
    if (!bytes)
        request->direction = NVT_NO_DATA;
    if (request->direction == NVT_TO_HOST && request->sgl.is_in_capsule)
        return NVME_SC_SGL_INVALID_TYPE | NVME_SC_DNR;
    request->data_bytes = (uint32_t)bytes;
    return 0;
}

static bool is_reservation(uint8_t opcode)
{
    return opcode == nvme_cmd_resv_register || opcode == nvme_cmd_resv_report ||
           opcode == nvme_cmd_resv_acquire || opcode == nvme_cmd_resv_release;
}

bool nvt_request_is_shared(const struct nvt_queue *queue, const struct nvf_sqe *sqe)
{
    return queue->qid && queue->ctrl && !nvt_auth_is_due(queue) && sqe->opcode != NVF_OPCODE &&
           !is_reservation(sqe->opcode);
}

void nvt_request_begin(struct nvt_queue *queue, struct nvt_request *request)
{
    request->queue = queue;
    queue->under_way++;
    list_append(&queue->requests, &request->node);
    queue->thread->commands++;
    queue->head = (uint16_t)(queue->head + 1 == queue->depth ? 0 : queue->head + 1);
    queue->heard_ns = queue->thread->now_ns;
    const uint16_t status = prepare_request(request);
    if (status)
        return nvt_request_finish(request, status);
    if (place_data(request))
        nvt_request_go_on(request);
}

void nvt_request_fetched(struct nvt_request *request, bool is_ok)
{
    take_from_host(request);
    if (!is_ok || request->queue->is_gone)
        nvt_request_finish(request, NVME_SC_DATA_XFER_ERROR);
    else if (request->is_preempted)
        nvt_request_finish(request, NVME_SC_CMD_ABORTED_PREMEPT);
    else
        target_run_request(request);
}

/* ---- ending ---- */

void nvt_request_finish(struct nvt_request *request, uint16_t status)
{
    request->status = status;
    if (request->is_parked)
        nvt_ctrl_unpark(request);
    if (request->queue->is_gone)
        return nvt_request_end(request);
    if (status) {
        request->queue->thread->errors++;
        nvt_ctrl_note_error(request);
    }
    hand_to_host(request);
    request->queue->target->transport->answer(request);
}

void nvt_request_end(struct nvt_request *request)
{
    struct nvt_queue *queue = request->queue;
    take_from_host(request);
    nvt_request_give_memory(request);
    list_remove(&request->node);
    if (request->ns) /* not before: its memory may have been on the wire until now */
        nvt_request_leave(request);
    queue->under_way--;
}

void nvt_request_leave(struct nvt_request *request)
{
    struct nvt_namespace *ns = request->ns;
    request->ns = NULL;
    if (!list_is_empty(&ns->preemptors))
        nvt_preemptors_pass(ns, request->ns_entry);
    nvt_namespace_release(ns, request->queue->thread);
}

void nvt_request_response(struct nvt_request *request, struct nvf_cqe *out)
{
    const struct nvt_queue *queue = request->queue;
    *out = (struct nvf_cqe){.result = htole64(request->result),
                            .sq_head = htole16(queue->has_no_flow ? 0xffff : queue->head),
                            .cid = request->sqe.cid,
                            .status = htole16((uint16_t)(request->status << 1))};
}

void nvt_request_put(struct nvt_request *request, const void *from, size_t len_bytes,
                     uint64_t offset)
{
    size_t put = offset < len_bytes ? len_bytes - offset : 0;
    if (put > request->data_bytes)
        put = request->data_bytes;
    if (put)
        memcpy(request->data, (const uint8_t *)from + offset, put);
    if (request->data_bytes > put)
        memset(request->data + put, 0, request->data_bytes - put);
}
