/* SPDX-License-Identifier: BSD-2-Clause */
/* Fabrics commands: how a host comes to a controller, and its registers. */
#include <stddef.h>
#include <string.h>

#include "common/serve/log.h"
#include "nvme/target/model/admission.h"
#include "nvme/target/model/authenticate.h"
#include "nvme/target/model/command.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/home.h"
#include "nvme/target/model/port.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/request.h"
#include "nvme/target/model/share.h"
#include "nvme/target/model/subsystem.h"

enum {
    CNTLID_ANY = 0xffff,
    ATTRIBUTE_NO_FLOW = 1 << 2,
    KEEP_ALIVE_STEP_MS = 100,
};

static uint16_t invalid_param(struct nvt_request *request, uint32_t offset, bool in_data)
{
    request->result = nvf_connect_fault(offset, in_data);
    return NVF_SPECIFIC(NVME_SC_CONNECT_INVALID_PARAM) | NVME_SC_DNR;
}

#define DATA_FAULT(field) invalid_param(request, offsetof(struct nvmf_connect_data, field), true)

/* A queue is connected once. */
static uint16_t connect_again(const struct nvt_queue *queue)
{
    if (!queue->ctrl)
        return 0;
    return (queue->qid ? NVME_SC_INVALID_OPCODE : NVME_SC_CMD_SEQ_ERROR) | NVME_SC_DNR;
}

static uint16_t connect_measure(struct nvt_request *request, uint64_t *bytes)
{
    *bytes = sizeof(struct nvmf_connect_data);
    return connect_again(request->queue);
}

/* Empty is none: a subsystem that takes any host takes one without a name. */
static bool fabrics_is_name(const char *text, size_t size)
{
    const size_t len = strnlen(text, size);
    return len < size && len <= NVF_NQN_MAX && nvf_is_shown(text, len);
}

static uint16_t admit_queue(struct nvt_request *request, struct nvt_ctrl *ctrl)
{
    struct nvt_queue *queue = request->queue;
    queue->share = nvt_share_join(&queue->thread->shares, ctrl->serial, queue->host_address);
    if (!queue->share)
        return NVF_SPECIFIC(NVME_SC_CONNECT_CTRL_BUSY);
    nvt_ctrl_take_queue(ctrl, queue);
    queue->has_no_flow = le32toh(request->sqe.cdw11) >> 16 & ATTRIBUTE_NO_FLOW;
    request->result = ctrl->instance.cntlid;
    return 0;
}

static uint16_t connect_admin(struct nvt_request *request, struct nvt_subsystem *subsystem,
                              const struct nvmf_connect_data *data)
{
    struct nvt_queue *queue = request->queue;
    struct nvt_host_id host;
    if (le16toh(data->cntlid) != CNTLID_ANY)
        return DATA_FAULT(cntlid);
    memcpy(&host, data->hostid, sizeof(host));
    if (subsystem->homes.admits &&
        !subsystem->homes.admits(&host, data->hostnqn, queue->host_address,
                                 subsystem->homes.context))
        return NVF_SPECIFIC(NVME_SC_CONNECT_CTRL_BUSY);
    struct nvt_ctrl *ctrl = nvt_ctrl_create(subsystem, queue);
    if (!ctrl)
        return NVF_SPECIFIC(NVME_SC_CONNECT_CTRL_BUSY);
    ctrl->host_id = host;
    memcpy(ctrl->host_nqn, data->hostnqn, NVF_NQN_MAX);
    ctrl->host_hash = nvt_host_hash(&ctrl->host_id, ctrl->host_nqn);
    const uint32_t kato_ms = le32toh(request->sqe.cdw12);
    const uint64_t rounded_ms =
        ((uint64_t)kato_ms + KEEP_ALIVE_STEP_MS - 1) / KEEP_ALIVE_STEP_MS * KEEP_ALIVE_STEP_MS;
    ctrl->keep_alive_ms = rounded_ms > UINT32_MAX ? UINT32_MAX / 100 * 100 : (uint32_t)rounded_ms;
    const uint16_t status = admit_queue(request, ctrl);
    ctrl->is_told = !status;
    if (status) /* there is no controller without its queue */
        nvt_ctrl_lose_queue(ctrl, queue);
    else
        mover_log(MOVER_LOG_INFO, "%s at %s connects to %s (controller %u)", ctrl->host_nqn,
                  ctrl->host_address, subsystem->nqn, ctrl->instance.cntlid);
    if (!status && subsystem->homes.came)
        subsystem->homes.came(ctrl, subsystem->homes.context);
    return status;
}

static uint16_t connect_io(struct nvt_request *request, struct nvt_subsystem *subsystem,
                           const struct nvmf_connect_data *data)
{
    struct nvt_queue *queue = request->queue;
    struct nvt_ctrl *ctrl = nvt_ctrl_find(subsystem, le16toh(data->cntlid));
    if (!ctrl || subsystem->is_discovery || ctrl->is_ending)
        return DATA_FAULT(cntlid);
    if (strcmp(ctrl->host_nqn, data->hostnqn) != 0)
        return DATA_FAULT(hostnqn);
    if (memcmp(&ctrl->host_id, data->hostid, sizeof(ctrl->host_id)) != 0)
        return DATA_FAULT(hostid);
    /* Names can be had by anybody; so one that proves nothing else comes from where the host is. */
    if (!queue->auth && strcmp(ctrl->host_address, queue->host_address) != 0) {
        request->result = nvf_connect_fault(offsetof(struct nvmf_connect_data, hostnqn), true);
        return NVF_SPECIFIC(NVME_SC_CONNECT_INVALID_HOST) | NVME_SC_DNR;
    }
    if (!(ctrl->csts & NVF_CSTS_READY))
        return NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR;
    if (ctrl->queues[queue->qid])
        return NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR; /* there is such a queue */
    return admit_queue(request, ctrl);
}

static uint16_t connect_queue(struct nvt_request *request)
{
    struct nvt_queue *queue = request->queue;
    struct nvmf_connect_data data;
    memcpy(&data, request->data, sizeof(data));
    const uint32_t cdw10 = le32toh(request->sqe.cdw10), cdw11 = le32toh(request->sqe.cdw11);
    const uint16_t qid = (uint16_t)(cdw10 >> 16), entries = (uint16_t)(cdw11 & 0xffff);
    if (queue->ctrl) /* by a Connect that came before, and whose data came later */
        return connect_again(queue);
    if (cdw10 & 0xffff) {
        request->result = nvf_connect_fault(40, false);
        return NVF_SPECIFIC(NVME_SC_CONNECT_FORMAT) | NVME_SC_DNR;
    }
    if (qid != queue->qid || qid >= NVT_QUEUES_MAX)
        return invalid_param(request, 42, false);
    if (!entries || entries >= queue->depth + 1u) /* 0's based */
        return invalid_param(request, 44, false);
    if (!*data.subsysnqn || !fabrics_is_name(data.subsysnqn, sizeof(data.subsysnqn)))
        return DATA_FAULT(subsysnqn);
    if (!fabrics_is_name(data.hostnqn, sizeof(data.hostnqn)))
        return DATA_FAULT(hostnqn);
    struct nvt_subsystem *subsystem = nvt_subsystem_find(queue->target, data.subsysnqn);
    if (!subsystem || !nvt_port_serves(queue->port, subsystem))
        return DATA_FAULT(subsysnqn);
    if (qid > subsystem->queues_max)
        return invalid_param(request, 42, false);
    if (!nvt_subsystem_admits(subsystem, data.hostnqn)) {
        request->result = nvf_connect_fault(offsetof(struct nvmf_connect_data, hostnqn), true);
        return NVF_SPECIFIC(NVME_SC_CONNECT_INVALID_HOST) | NVME_SC_DNR;
    }
    uint16_t status = nvt_auth_begin(queue, subsystem, data.hostnqn);
    if (status)
        return status;
    queue->depth = (uint16_t)(entries + 1);
    queue->head = (uint16_t)(1 % queue->depth); /* it counts from this command on */
    status = qid ? connect_io(request, subsystem, &data) : connect_admin(request, subsystem, &data);
    if (status)
        nvt_auth_end(queue);
    else if (queue->auth)
        request->result |= NVF_CONNECT_ATR;
    return status;
}

static void run_connect(struct nvt_request *request)
{
    const uint16_t status = connect_queue(request);
    nvt_request_finish(request, status);
}

/* ---- registers ---- */

enum { PROPERTY_8_BYTES = 1 };

static void run_property_get(struct nvt_request *request)
{
    const struct nvt_ctrl *ctrl = request->queue->ctrl;
    const uint32_t size = le32toh(request->sqe.cdw10) & 7, offset = le32toh(request->sqe.cdw11);
    uint64_t value;
    bool is_wide = false;
    if (request->queue->qid)
        return nvt_request_finish(request, NVME_SC_INVALID_OPCODE | NVME_SC_DNR);
    switch (offset) {
    case NVME_REG_CAP:
        value = nvt_ctrl_capabilities();
        is_wide = true;
        break;
    case NVME_REG_VS:
        value = NVT_VERSION;
        break;
    case NVME_REG_CC:
        value = ctrl->cc;
        break;
    case NVME_REG_CSTS:
        value = ctrl->csts;
        break;
    default:
        return nvt_request_finish(request, NVME_SC_INVALID_FIELD | NVME_SC_DNR);
    }
    if (is_wide != (size == PROPERTY_8_BYTES))
        return nvt_request_finish(request, NVME_SC_INVALID_FIELD | NVME_SC_DNR);
    request->result = value;
    nvt_request_finish(request, 0);
}

static void run_property_set(struct nvt_request *request)
{
    const uint32_t size = le32toh(request->sqe.cdw10) & 7, offset = le32toh(request->sqe.cdw11);
    if (request->queue->qid)
        return nvt_request_finish(request, NVME_SC_INVALID_OPCODE | NVME_SC_DNR);
    if (offset != NVME_REG_CC || size)
        return nvt_request_finish(request, NVME_SC_INVALID_FIELD | NVME_SC_DNR);
    struct nvt_ctrl *ctrl = request->queue->ctrl;
    const uint32_t cc = le32toh(request->sqe.cdw12);
    nvt_request_finish(request, 0); /* said before connections end by it */
    nvt_ctrl_set_config(ctrl, cc);
}

/* Ends one I/O queue: its commands are answered first, then the host closes the connection. */
static void run_disconnect(struct nvt_request *request)
{
    if (!request->queue->qid || le32toh(request->sqe.cdw10) & 0xffff)
        return nvt_request_finish(request, NVME_SC_INVALID_FIELD | NVME_SC_DNR);
    struct nvt_queue *queue = request->queue;
    nvt_request_finish(request, 0);
    queue->target->transport->cut(queue);
}

const struct nvt_command *nvt_fabrics_command(uint8_t type)
{
    static const struct nvt_command commands[] = {
        [NVF_PROPERTY_SET] = {.name = "property set",
                              .run = run_property_set,
                              .in_discovery = true},
        [NVF_CONNECT] = {.name = "connect",
                         .direction = NVT_FROM_HOST,
                         .measure = connect_measure,
                         .run = run_connect,
                         .in_discovery = true},
        [NVF_PROPERTY_GET] = {.name = "property get",
                              .run = run_property_get,
                              .in_discovery = true},
        [NVF_AUTH_SEND] = {.name = "authentication send",
                           .direction = NVT_FROM_HOST,
                           .measure = nvt_auth_measure,
                           .run = nvt_auth_run},
        [NVF_AUTH_RECEIVE] = {.name = "authentication receive",
                              .direction = NVT_TO_HOST,
                              .measure = nvt_auth_measure,
                              .run = nvt_auth_run},
        [NVF_DISCONNECT] = {.name = "disconnect", .run = run_disconnect},
    };
    if (type >= sizeof(commands) / sizeof(*commands) || !commands[type].run)
        return NULL;
    return &commands[type];
}
