/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/ctrl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/serve/log.h"
#include "nvme/target/model/admission.h"
#include "nvme/target/model/authenticate.h"
#include "nvme/target/model/port.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/request.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/model/target.h"

enum { READY_500_MS = 15 };

uint64_t nvt_ctrl_capabilities(void)
{
    return (NVT_DEPTH_MAX - 1) | (uint64_t)1 << 16 /* queues are contiguous */ |
           (uint64_t)READY_500_MS << 24 | (uint64_t)1 << 37 /* the NVM command set */;
}

struct nvt_ctrl *nvt_ctrl_find(struct nvt_subsystem *subsystem, uint16_t cntlid)
{
    for (struct list_node *node = list_first(&subsystem->ctrls); node;
         node = list_after(&subsystem->ctrls, node)) {
        struct nvt_ctrl *ctrl = LIST_MEMBER(node, struct nvt_ctrl, node);
        if (ctrl->instance.cntlid == cntlid)
            return ctrl;
    }
    return NULL;
}

/* A number comes again late, so that no host takes a new controller for its old one. 0: all are
 * in use. */
static uint16_t new_cntlid(struct nvt_subsystem *subsystem)
{
    const uint16_t low = subsystem->cntlid_min, high = subsystem->cntlid_max;
    for (uint32_t tries = 0; tries <= (uint32_t)high - low; tries++) {
        const uint16_t last = subsystem->next_cntlid;
        subsystem->next_cntlid = last >= low && last < high ? (uint16_t)(last + 1) : low;
        if (!nvt_ctrl_find(subsystem, subsystem->next_cntlid))
            return subsystem->next_cntlid;
    }
    return 0;
}

struct nvt_ctrl *nvt_ctrl_create(struct nvt_subsystem *subsystem, struct nvt_queue *queue)
{
    struct nvt_target *target = subsystem->target;
    const uint16_t cntlid = nvt_ctrl_is_admitted(target, queue) ? new_cntlid(subsystem) : 0;
    struct nvt_ctrl *ctrl = cntlid ? calloc(1, sizeof(*ctrl)) : NULL;
    if (!ctrl)
        return NULL;
    ctrl->subsystem = subsystem;
    ctrl->port = queue->port;
    nvt_port_hold(ctrl->port);
    ctrl->instance = nvt_instance_new(subsystem, cntlid);
    ctrl->serial = ++target->ctrl_serial;
    ctrl->home_state = NVME_ANA_STATE_INACCESSIBLE;
    ctrl->heard_ns = target->now_ns;
    memcpy(ctrl->host_address, queue->host_address, sizeof(ctrl->host_address));
    list_init(&ctrl->aers);
    list_init(&ctrl->pending);
    list_append(&subsystem->ctrls, &ctrl->node);
    target->ctrl_count++;
    return ctrl;
}

void nvt_ctrl_lose_queue(struct nvt_ctrl *ctrl, struct nvt_queue *queue)
{
    const bool is_of_host = ctrl->queues[queue->qid] == queue;
    if (is_of_host)
        ctrl->queues[queue->qid] = NULL;
    if (is_of_host && queue->heard_ns > ctrl->heard_ns) /* what came by it kept it alive */
        ctrl->heard_ns = queue->heard_ns;
    nvt_ctrl_forget_pending(queue);
    if (!queue->qid) /* there is no controller without its admin queue */
        nvt_ctrl_cut(ctrl);
    for (int i = 0; i < NVT_QUEUES_MAX; i++)
        if (ctrl->queues[i])
            return;
    if (!list_is_empty(&ctrl->pending))
        return;
    struct nvt_subsystem *subsystem = ctrl->subsystem;
    if (ctrl->is_told)
        mover_log(MOVER_LOG_INFO, "%s at %s leaves %s (controller %u)", ctrl->host_nqn,
                  ctrl->host_address, subsystem->nqn, ctrl->instance.cntlid);
    nvt_resets_end(ctrl);
    list_remove(&ctrl->node);
    subsystem->target->ctrl_count--;
    nvt_port_release(ctrl->port);
    free(ctrl);
    nvt_subsystem_release(subsystem);
}

static void ctrl_cut_queue(struct nvt_queue *queue)
{
    if (queue->is_cut)
        return;
    queue->is_cut = true;
    queue->target->transport->cut(queue);
}

/* From that number on. */
static void cut_queues(struct nvt_ctrl *ctrl, int from)
{
    for (int i = from; i < NVT_QUEUES_MAX; i++)
        if (ctrl->queues[i])
            ctrl_cut_queue(ctrl->queues[i]);
    for (struct list_node *node = list_first(&ctrl->pending); node;
         node = list_after(&ctrl->pending, node))
        ctrl_cut_queue(LIST_MEMBER(node, struct nvt_queue, pending));
}

void nvt_ctrl_cut(struct nvt_ctrl *ctrl)
{
    ctrl->is_ending = true;
    cut_queues(ctrl, 0);
}

void nvt_ctrl_drop(struct nvt_ctrl *ctrl)
{
    const struct nvt_transport *transport = ctrl->subsystem->target->transport;
    nvt_ctrl_cut(ctrl);
    for (int i = 0; i < NVT_QUEUES_MAX; i++)
        if (ctrl->queues[i])
            transport->drop(ctrl->queues[i]);
    for (struct list_node *node = list_first(&ctrl->pending); node;
         node = list_after(&ctrl->pending, node))
        transport->drop(LIST_MEMBER(node, struct nvt_queue, pending));
}

void nvt_ctrl_cut_queue(struct nvt_queue *queue)
{
    if (queue->qid)
        ctrl_cut_queue(queue);
    else
        nvt_ctrl_cut(queue->ctrl);
}

static void cut_if_late(struct nvt_queue *queue, uint64_t now_ns)
{
    struct nvt_target *target = queue->target;
    const char *why = nvt_auth_is_late(queue, now_ns)     ? "it does not prove itself"
                      : nvt_queue_is_stuck(queue, now_ns) ? "it takes no answers, or sends no data"
                                                          : NULL;
    if (!why || queue->is_cut)
        return;
    target->ended_count++;
    if (target->ended)
        target->ended(queue, why);
    nvt_ctrl_cut_queue(queue);
}

void nvt_ctrl_cut_late(struct nvt_ctrl *ctrl, uint64_t now_ns)
{
    for (int i = 0; i < NVT_QUEUES_MAX; i++)
        if (ctrl->queues[i])
            cut_if_late(ctrl->queues[i], now_ns);
    for (struct list_node *node = list_first(&ctrl->pending); node;
         node = list_after(&ctrl->pending, node))
        cut_if_late(LIST_MEMBER(node, struct nvt_queue, pending), now_ns);
}

/* ---- configuration ---- */

static bool is_config_valid(uint32_t cc)
{
    const uint32_t sq_shift = cc >> 16 & 0xf, cq_shift = cc >> 20 & 0xf, page = cc >> 7 & 0xf,
                   css = cc >> 4 & 7, arbitration = cc >> 11 & 7;
    return sq_shift == 6 && cq_shift == 4 && !page && !css && !arbitration;
}

/* The host may use their places again. */
static void abort_aers(struct nvt_ctrl *ctrl)
{
    struct list_node *node;
    while ((node = list_first(&ctrl->aers)))
        nvt_request_finish(LIST_MEMBER(node, struct nvt_request, wait), NVME_SC_ABORT_REQ);
}

void nvt_ctrl_set_config(struct nvt_ctrl *ctrl, uint32_t cc)
{
    const uint32_t old = ctrl->cc;
    ctrl->cc = cc;
    ctrl->heard_ns = ctrl->subsystem->target->now_ns;
    if ((cc & NVF_CC_ENABLE) && !(old & NVF_CC_ENABLE))
        ctrl->csts = is_config_valid(cc) || ctrl->subsystem->is_discovery
                         ? NVF_CSTS_READY
                         : (uint32_t)NVF_CSTS_FATAL;
    if (!(cc & NVF_CC_ENABLE) &&
        (old & NVF_CC_ENABLE)) { /* reset: I/O queues end, this one stays */
        ctrl->csts = 0;
        abort_aers(ctrl);
        cut_queues(ctrl, 1);
    }
    if ((cc & NVF_CC_SHUTDOWN) && !(old & NVF_CC_SHUTDOWN)) {
        cut_queues(ctrl, 1);
        ctrl->csts = (ctrl->csts & ~(uint32_t)NVF_CSTS_SHUTDOWN) | NVF_CSTS_SHUTDOWN_DONE;
    }
    if (!(cc & NVF_CC_SHUTDOWN))
        ctrl->csts &= ~(uint32_t)NVF_CSTS_SHUTDOWN;
}

/* ---- events ---- */

enum { TYPE_IO_COMMAND_SET = 6 }; /* libnvme has no name for it */

static const struct {
    enum nvt_event event;
    uint32_t enable; /* bit of feature 0x0b; 0: it cannot be turned off */
    uint8_t type, info, log;
} events[] = {
    {NVT_EVENT_NAMESPACES, 1u << 8, NVME_AER_NOTICE, NVME_AER_NOTICE_NS_CHANGED,
     NVME_LOG_LID_CHANGED_NS},
    {NVT_EVENT_ANA, 1u << 11, NVME_AER_NOTICE, NVME_AER_NOTICE_ANA, NVME_LOG_LID_ANA},
    {NVT_EVENT_DISCOVERY, 1u << 31, NVME_AER_NOTICE, NVME_AER_NOTICE_DISC_CHANGED,
     NVME_LOG_LID_DISCOVER},
    {NVT_EVENT_RESERVATION, 0, TYPE_IO_COMMAND_SET, 0, NVME_LOG_LID_RESERVATION},
    {NVT_EVENT_RESET, NVF_OAES_CCR_COMPLETED, NVME_AER_NOTICE, NVF_NOTICE_CCR_COMPLETED,
     NVF_LOG_CROSS_CTRL_RESET},
};

void nvt_ctrl_park(struct nvt_ctrl *ctrl, struct nvt_request *request)
{
    request->is_parked = true;
    list_append(&ctrl->aers, &request->wait);
    ctrl->aer_count++;
}

void nvt_ctrl_unpark(struct nvt_request *request)
{
    request->is_parked = false;
    list_remove(&request->wait);
    request->queue->ctrl->aer_count--;
}

void nvt_ctrl_tell(struct nvt_ctrl *ctrl)
{
    for (size_t i = 0; i < sizeof(events) / sizeof(*events) && ctrl->aer_count; i++) {
        if (!(ctrl->events & events[i].event) || (ctrl->unread & events[i].event))
            continue;
        ctrl->events &= ~(uint32_t)events[i].event;
        ctrl->unread |= events[i].event; /* told once, until the host has read the page */
        struct nvt_request *aer = LIST_MEMBER(list_first(&ctrl->aers), struct nvt_request, wait);
        aer->result =
            events[i].type | (uint32_t)events[i].info << 8 | (uint32_t)events[i].log << 16;
        nvt_request_finish(aer, 0);
    }
}

void nvt_ctrl_notify(struct nvt_ctrl *ctrl, enum nvt_event event)
{
    for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++)
        if (events[i].event == event &&
            (!events[i].enable || ctrl->async_config & events[i].enable))
            ctrl->events |= event;
    nvt_ctrl_tell(ctrl);
}

/* What a host did wrong is its own matter: the log has what the disk, or this target, could not. */
static void tell_failed_io(const struct nvt_request *request, const struct nvt_ctrl *ctrl)
{
    static struct mover_told told;
    const uint16_t kind = request->status & 0x7ff;
    const struct nvf_sqe *sqe = &request->sqe;
    if (kind >> NVME_SCT_SHIFT != NVME_SCT_MEDIA && kind != NVME_SC_INTERNAL)
        return;
    mover_log_told(&told, MOVER_LOG_WARNING,
                   "command 0x%02x of %s at %s failed with status 0x%x: namespace %u of %s, block "
                   "%" PRIu64,
                   sqe->opcode, ctrl->host_nqn, ctrl->host_address, kind, le32toh(sqe->nsid),
                   ctrl->subsystem->nqn, (uint64_t)le32toh(sqe->cdw11) << 32 | le32toh(sqe->cdw10));
}

void nvt_ctrl_note_error(struct nvt_request *request)
{
    struct nvt_ctrl *ctrl = request->queue->ctrl;
    if (!ctrl)
        return;
    pthread_mutex_lock(&request->queue->target->error_lock);
    ctrl->error_count++;
    struct nvt_error_entry *entry = &ctrl->errors[ctrl->error_count % NVT_ERRORS_KEPT];
    *entry = (struct nvt_error_entry){.count = ctrl->error_count,
                                      .qid = request->queue->qid,
                                      .cid = le16toh(request->sqe.cid),
                                      .status = (uint16_t)(request->status << 1),
                                      .location = request->error_offset,
                                      .nsid = le32toh(request->sqe.nsid)};
    if (request->queue->qid)
        entry->lba = (uint64_t)le32toh(request->sqe.cdw11) << 32 | le32toh(request->sqe.cdw10);
    pthread_mutex_unlock(&request->queue->target->error_lock);
    tell_failed_io(request, ctrl);
}

enum nvme_ana_state nvt_ctrl_ana_state(const struct nvt_ctrl *ctrl, uint32_t group)
{
    if (ctrl->subsystem->homes.came)
        return (enum nvme_ana_state)ctrl->home_state;
    const uint8_t of_group = ctrl->subsystem->ana_states[group];
    return (enum nvme_ana_state)(of_group ? of_group : ctrl->port->ana_states[group]);
}

bool nvt_ctrl_sees(const struct nvt_ctrl *ctrl, const struct nvt_namespace *ns)
{
    return ns && !ns->is_removed && ns->subsystem == ctrl->subsystem;
}
