/* SPDX-License-Identifier: BSD-2-Clause */
/* Admin commands, but Identify and Get Log Page: those have files of their own. */
#include <string.h>

#include "nvme/target/model/command.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/identify.h"
#include "nvme/target/model/log.h"
#include "nvme/target/model/namespace.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/request.h"
#include "nvme/target/model/reserve.h"
#include "nvme/target/model/reset.h"
#include "nvme/target/model/subsystem.h"

enum {
    EFFECT_SUPPORTED = NVME_CMD_EFFECTS_CSUPP,
    HOST_ID_BYTES = 16,
    FEATURE_SELECT_SUPPORTED = 3,
    FEATURE_CHANGEABLE = 4,
};

static uint16_t identify_measure(struct nvt_request *request, uint64_t *bytes)
{
    (void)request;
    *bytes = NVME_IDENTIFY_DATA_SIZE;
    return 0;
}

static void run_keep_alive(struct nvt_request *request)
{
    nvt_request_finish(request, 0); /* that it has come is all it is for */
}

static void run_async_event(struct nvt_request *request)
{
    struct nvt_ctrl *ctrl = request->queue->ctrl;
    if (ctrl->aer_count == NVT_AER_MAX)
        return nvt_request_finish(request, NVF_SPECIFIC(NVME_SC_ASYNC_LIMIT) | NVME_SC_DNR);
    nvt_ctrl_park(ctrl, request);
    nvt_ctrl_tell(ctrl);
}

/* Only what waits can be aborted; the response says by bit 0 whether it was. */
static void run_abort(struct nvt_request *request)
{
    const struct nvt_ctrl *ctrl = request->queue->ctrl;
    const uint32_t cdw10 = le32toh(request->sqe.cdw10);
    const uint16_t qid = (uint16_t)(cdw10 & 0xffff), cid = (uint16_t)(cdw10 >> 16);
    struct nvt_request *found = NULL;
    for (struct list_node *node = list_first(&ctrl->aers); node && !qid && !found;
         node = list_after(&ctrl->aers, node)) {
        struct nvt_request *aer = LIST_MEMBER(node, struct nvt_request, wait);
        if (le16toh(aer->sqe.cid) == cid)
            found = aer;
    }
    if (found)
        nvt_request_finish(found, NVME_SC_ABORT_REQ);
    request->result = found ? 0 : 1;
    nvt_request_finish(request, 0);
}

/* ---- features ---- */

static uint8_t feature_of(const struct nvt_request *request)
{
    return (uint8_t)le32toh(request->sqe.cdw10);
}

static uint16_t get_features_measure(struct nvt_request *request, uint64_t *bytes)
{
    *bytes = feature_of(request) == NVME_FEAT_FID_HOST_ID ? HOST_ID_BYTES : 0;
    return 0;
}

static uint16_t set_features_measure(struct nvt_request *request, uint64_t *bytes)
{
    *bytes = feature_of(request) == NVME_FEAT_FID_HOST_BEHAVIOR ? 512 : 0;
    return 0;
}

static uint32_t queue_count(const struct nvt_ctrl *ctrl)
{
    const uint32_t count = ctrl->subsystem->queues_max - 1u; /* 0's based */
    return count | count << 16;                              /* of both kinds */
}

static uint16_t protect_namespace(struct nvt_request *request, bool sets)
{
    const struct nvt_ctrl *ctrl = request->queue->ctrl;
    const uint32_t nsid = le32toh(request->sqe.nsid), state = le32toh(request->sqe.cdw11) & 7;
    struct nvt_namespace *ns =
        nsid && nsid <= NVT_NSID_MAX ? ctrl->subsystem->namespaces[nsid] : NULL;
    if (!ns)
        return NVME_SC_INVALID_NS | NVME_SC_DNR;
    request->result = ns->is_read_only;
    if (!sets)
        return 0;
    if (state > 1)
        return NVME_SC_INVALID_FIELD | NVME_SC_DNR;
    if (!state && ns->backend->is_read_only)
        return NVF_SPECIFIC(NVME_SC_FEATURE_NOT_CHANGEABLE) | NVME_SC_DNR;
    ns->is_read_only = state;
    return 0;
}

static uint16_t set_feature(struct nvt_request *request)
{
    struct nvt_ctrl *ctrl = request->queue->ctrl;
    const uint32_t cdw11 = le32toh(request->sqe.cdw11);
    if (le32toh(request->sqe.cdw10) >> 31)
        return NVF_SPECIFIC(NVME_SC_FEATURE_NOT_SAVEABLE) | NVME_SC_DNR;
    switch (feature_of(request)) {
    case NVME_FEAT_FID_NUM_QUEUES:
        if ((cdw11 & 0xffff) == 0xffff || cdw11 >> 16 == 0xffff)
            return NVME_SC_INVALID_FIELD | NVME_SC_DNR;
        request->result = queue_count(ctrl);
        return 0;
    case NVME_FEAT_FID_KATO:
        ctrl->keep_alive_ms = (uint32_t)(((uint64_t)cdw11 + 99) / 100 * 100);
        request->result = ctrl->keep_alive_ms;
        return 0;
    case NVME_FEAT_FID_ASYNC_EVENT:
        ctrl->async_config = cdw11;
        return 0;
    case NVME_FEAT_FID_VOLATILE_WC:
        return cdw11 & 1 ? 0 : NVF_SPECIFIC(NVME_SC_FEATURE_NOT_CHANGEABLE) | NVME_SC_DNR;
    case NVME_FEAT_FID_HOST_ID:
        return NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR; /* Connect has set it */
    case NVME_FEAT_FID_HOST_BEHAVIOR:
        return 0;
    case NVME_FEAT_FID_RESV_MASK:
        return nvt_resv_set_mask(request);
    case NVME_FEAT_FID_RESV_PERSIST:
        return nvt_resv_persistence(request, true);
    case NVME_FEAT_FID_WRITE_PROTECT:
        return protect_namespace(request, true);
    default:
        return NVME_SC_INVALID_FIELD | NVME_SC_DNR;
    }
}

static void set_features(struct nvt_request *request)
{
    nvt_request_finish(request, set_feature(request));
}

static uint16_t get_feature(struct nvt_request *request)
{
    const struct nvt_ctrl *ctrl = request->queue->ctrl;
    switch (feature_of(request)) {
    case NVME_FEAT_FID_ARBITRATION:
    case NVME_FEAT_FID_POWER_MGMT:
    case NVME_FEAT_FID_ERR_RECOVERY:
    case NVME_FEAT_FID_TEMP_THRESH:
    case NVME_FEAT_FID_WRITE_ATOMIC:
    case NVME_FEAT_FID_HOST_BEHAVIOR:
        return 0;
    case NVME_FEAT_FID_VOLATILE_WC:
        request->result = 1;
        return 0;
    case NVME_FEAT_FID_NUM_QUEUES:
        request->result = queue_count(ctrl);
        return 0;
    case NVME_FEAT_FID_ASYNC_EVENT:
        request->result = ctrl->async_config;
        return 0;
    case NVME_FEAT_FID_KATO:
        request->result = ctrl->keep_alive_ms;
        return 0;
    case NVME_FEAT_FID_HOST_ID:
        if (!(le32toh(request->sqe.cdw11) & 1)) /* over fabrics it has 128 bits */
            return NVME_SC_INVALID_FIELD | NVME_SC_DNR;
        nvt_request_put(request, &ctrl->host_id, sizeof(ctrl->host_id), 0);
        return 0;
    case NVME_FEAT_FID_RESV_MASK:
        return nvt_resv_get_mask(request);
    case NVME_FEAT_FID_RESV_PERSIST:
        return nvt_resv_persistence(request, false);
    case NVME_FEAT_FID_WRITE_PROTECT:
        return protect_namespace(request, false);
    default:
        return NVME_SC_INVALID_FIELD | NVME_SC_DNR;
    }
}

static void get_features(struct nvt_request *request)
{
    const uint32_t select = le32toh(request->sqe.cdw10) >> 8 & 7;
    uint16_t status = get_feature(request);
    if (!status && select == FEATURE_SELECT_SUPPORTED)
        request->result = FEATURE_CHANGEABLE;
    if (!status && select > FEATURE_SELECT_SUPPORTED)
        status = NVME_SC_INVALID_FIELD | NVME_SC_DNR;
    nvt_request_finish(request, status);
}

const struct nvt_command *nvt_admin_command(uint8_t opcode)
{
    static const struct nvt_command commands[256] = {
        [nvme_admin_get_log_page] = {.name = "get log page",
                                     .direction = NVT_TO_HOST,
                                     .measure = nvt_log_measure,
                                     .run = nvt_get_log,
                                     .in_discovery = true,
                                     .effects = EFFECT_SUPPORTED},
        [nvme_admin_identify] = {.name = "identify",
                                 .direction = NVT_TO_HOST,
                                 .measure = identify_measure,
                                 .run = nvt_identify,
                                 .in_discovery = true,
                                 .effects = EFFECT_SUPPORTED},
        [nvme_admin_abort_cmd] = {.name = "abort", .run = run_abort, .effects = EFFECT_SUPPORTED},
        [nvme_admin_set_features] = {.name = "set features",
                                     .direction = NVT_FROM_HOST,
                                     .measure = set_features_measure,
                                     .run = set_features,
                                     .in_discovery = true,
                                     .effects = EFFECT_SUPPORTED},
        [nvme_admin_get_features] = {.name = "get features",
                                     .direction = NVT_TO_HOST,
                                     .measure = get_features_measure,
                                     .run = get_features,
                                     .in_discovery = true,
                                     .effects = EFFECT_SUPPORTED},
        [nvme_admin_async_event] = {.name = "async event request",
                                    .run = run_async_event,
                                    .in_discovery = true,
                                    .effects = EFFECT_SUPPORTED},
        [nvme_admin_keep_alive] = {.name = "keep alive",
                                   .run = run_keep_alive,
                                   .in_discovery = true,
                                   .effects = EFFECT_SUPPORTED},
        [NVF_ADMIN_CROSS_CTRL_RESET] = {.name = "cross-controller reset",
                                        .run = nvt_run_reset,
                                        .effects = EFFECT_SUPPORTED},
    };
    return commands[opcode].run ? &commands[opcode] : NULL;
}
