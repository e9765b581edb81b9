/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/reserve.h"

#include <assert.h>
#include <string.h>

#include "nvme/target/model/command.h"
#include "nvme/target/model/commit.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/memory.h"
#include "nvme/target/model/namespace.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/request.h"
#include "nvme/target/model/reservation.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/model/target.h"

static bool is_of_host(const struct nvt_ctrl *ctrl, const struct nvt_host_id *host)
{
    return memcmp(&ctrl->host_id, host, sizeof(*host)) == 0;
}

/* ---- who is told ---- */

static void tell_host(const struct nvt_namespace *ns, const struct nvt_notice *notice)
{
    const struct list *ctrls = &ns->subsystem->ctrls;
    for (struct list_node *node = list_first(ctrls); node; node = list_after(ctrls, node)) {
        struct nvt_ctrl *ctrl = LIST_MEMBER(node, struct nvt_ctrl, node);
        if (!is_of_host(ctrl, &notice->host) ||
            nvt_notice_is_masked(ctrl->reservation_masks[ns->nsid], notice->type))
            continue;
        nvt_reservation_log_add(&ctrl->reservation_log, ns->nsid, notice->type);
        nvt_ctrl_notify(ctrl, NVT_EVENT_RESERVATION);
    }
}

/* ---- commands that a preemption ends ---- */

/* Requests that wait for memory end now, and those that wait for data when that has come. Requests
 * that the backend has got go on. */
static void abort_queue(struct nvt_queue *queue, const struct nvt_namespace *ns,
                        const struct nvt_request *preemptor)
{
    struct list_node *next;
    for (struct list_node *node = list_first(&queue->requests); node; node = next) {
        struct nvt_request *request = LIST_MEMBER(node, struct nvt_request, node);
        next = list_after(&queue->requests, node);
        if (request->ns != ns || request == preemptor)
            continue;
        request->is_preempted = true;
        if (!request->is_starved)
            continue;
        nvt_request_give_memory(request);
        nvt_request_finish(request, NVME_SC_CMD_ABORTED_PREMEPT);
    }
}

/* preemptor NULL: it has been answered. */
static void abort_host(const struct nvt_namespace *ns, const struct nvt_host_id *host,
                       const struct nvt_request *preemptor)
{
    const struct list *ctrls = &ns->subsystem->ctrls;
    for (struct list_node *node = list_first(ctrls); node; node = list_after(ctrls, node)) {
        const struct nvt_ctrl *ctrl = LIST_MEMBER(node, struct nvt_ctrl, node);
        for (int i = 0; i < NVT_QUEUES_MAX && is_of_host(ctrl, host); i++)
            if (ctrl->queues[i])
                abort_queue(ctrl->queues[i], ns, preemptor);
    }
}

static void preempt_step(struct nvt_request *preemptor)
{
    if (--preemptor->steps_left)
        return;
    list_remove(&preemptor->wait);
    preemptor->ns->target->serial--;
    if (preemptor->queue)
        nvt_request_finish(preemptor, 0);
    else
        nvt_commits_are_calm(preemptor->ns->commits);
}

/* The command is done when all that came to the namespace before it are, also those of connections
 * that have ended meanwhile: the backend may have their data still. */
static void preempt_hosts(struct nvt_request *preemptor,
                          const struct nvt_reservation_effect *effect)
{
    struct nvt_namespace *ns = preemptor->ns;
    preemptor->steps_left = (uint32_t)nvt_namespace_sum(ns).users; /* itself, too, till below */
    ns->preemptions++;
    ns->target->serial++;
    list_append(&ns->preemptors, &preemptor->wait);
    for (size_t i = 0; i < effect->abort_count; i++)
        abort_host(ns, &effect->aborts[i], preemptor);
    nvt_request_give_memory(preemptor); /* those that it waits for may need it */
    preempt_step(preemptor);
}

void nvt_preemptors_pass(struct nvt_namespace *ns, uint64_t entry)
{
    struct list_node *next;
    for (struct list_node *node = list_first(&ns->preemptors); node; node = next) {
        struct nvt_request *preemptor = LIST_MEMBER(node, struct nvt_request, wait);
        next = list_after(&ns->preemptors, node);
        if (entry <= preemptor->ns_entry)
            preempt_step(preemptor);
    }
}

/* ---- the commands ---- */

/* Hosts without a host ID cannot be told apart. */
static bool has_host_id(const struct nvt_ctrl *ctrl)
{
    static const struct nvt_host_id none;
    return !is_of_host(ctrl, &none);
}

static_assert((int)NVT_REGISTER_BYTES == (int)NVT_ACQUIRE_BYTES, "two keys");

struct nvt_reservation_change nvt_resv_change_of(const struct nvt_request *request)
{
    struct nvt_reservation_change change = {.host = request->queue->ctrl->host_id,
                                            .opcode = request->sqe.opcode,
                                            .cdw10 = le32toh(request->sqe.cdw10)};
    const bool has_one_key = change.opcode == nvme_cmd_resv_release;
    memcpy(change.data, request->data, has_one_key ? NVT_RELEASE_BYTES : NVT_REGISTER_BYTES);
    return change;
}

uint16_t nvt_resv_compute(const struct nvt_request *request, struct nvt_reservation *r,
                          struct nvt_reservation_effect *effect)
{
    const struct nvt_reservation_change change = nvt_resv_change_of(request);
    return nvt_reservation_change(r, &change, effect);
}

void nvt_resv_conclude(struct nvt_request *request, const struct nvt_reservation_effect *effect)
{
    for (size_t i = 0; i < effect->notice_count; i++)
        tell_host(request->ns, &effect->notices[i]);
    if (effect->abort_count)
        preempt_hosts(request, effect);
    else
        nvt_request_finish(request, 0);
}

void nvt_resv_take_effect(struct nvt_namespace *ns, const struct nvt_reservation_effect *effect,
                          const struct nvt_request *preemptor)
{
    for (size_t i = 0; i < effect->notice_count; i++)
        tell_host(ns, &effect->notices[i]);
    for (size_t i = 0; i < effect->abort_count; i++)
        abort_host(ns, &effect->aborts[i], preemptor);
}

void nvt_resv_await_calm(struct nvt_namespace *ns, struct nvt_request *barrier, uint32_t others)
{
    assert(!barrier->queue && nvt_namespace_sum(ns).users >= others);
    if (barrier->steps_left) { /* who came before the earlier one came before this one, too */
        list_remove(&barrier->wait);
        ns->target->serial--;
    }
    barrier->ns = ns;
    barrier->ns_entry = ns->preemptions++;
    barrier->steps_left = 1 + (uint32_t)nvt_namespace_sum(ns).users - others;
    ns->target->serial++;
    list_append(&ns->preemptors, &barrier->wait);
    preempt_step(barrier);
}

void nvt_resv_change(struct nvt_request *request)
{
    const struct nvt_ctrl *ctrl = request->queue->ctrl;
    struct nvt_reservation_effect effect;
    uint16_t status = nvt_request_namespace(request);
    if (!status && !has_host_id(ctrl))
        status = NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR;
    if (!status && request->ns->commits)
        return nvt_commits_add(request->ns->commits, request);
    if (!status)
        status = nvt_resv_compute(request, &request->ns->reservation, &effect);
    if (status)
        return nvt_request_finish(request, status);
    nvt_resv_conclude(request, &effect);
}

void nvt_resv_report(struct nvt_request *request)
{
    uint8_t report[NVT_REPORT_BYTES];
    size_t len_bytes = 0;
    uint16_t status = nvt_request_namespace(request);
    if (!status)
        status = nvt_reservation_report(&request->ns->reservation, le32toh(request->sqe.cdw11),
                                        report, &len_bytes);
    if (!status)
        nvt_request_put(request, report, len_bytes, 0);
    nvt_request_finish(request, status);
}

uint16_t nvt_resv_measure(struct nvt_request *request, uint64_t *bytes)
{
    switch (request->sqe.opcode) {
    case nvme_cmd_resv_report: /* dwords, 0's based */
        *bytes = ((uint64_t)le32toh(request->sqe.cdw10) + 1) * 4;
        break;
    case nvme_cmd_resv_release:
        *bytes = NVT_RELEASE_BYTES;
        break;
    default:
        *bytes = NVT_REGISTER_BYTES; /* and Acquire */
        break;
    }
    return 0;
}

/* ---- its features ---- */

enum { MASK_BITS = 0x0e, PERSISTS = 1 };

static struct nvt_namespace *feature_namespace(const struct nvt_request *request)
{
    const uint32_t nsid = le32toh(request->sqe.nsid);
    return nsid <= NVT_NSID_MAX ? request->queue->ctrl->subsystem->namespaces[nsid] : NULL;
}

uint16_t nvt_resv_set_mask(struct nvt_request *request)
{
    struct nvt_ctrl *ctrl = request->queue->ctrl;
    const uint8_t mask = (uint8_t)(le32toh(request->sqe.cdw11) & MASK_BITS);
    const uint32_t nsid = le32toh(request->sqe.nsid);
    if (nsid == NVME_NSID_ALL)
        memset(ctrl->reservation_masks, mask, sizeof(ctrl->reservation_masks));
    else if (feature_namespace(request))
        ctrl->reservation_masks[nsid] = mask;
    else
        return NVME_SC_INVALID_NS | NVME_SC_DNR;
    return 0;
}

uint16_t nvt_resv_get_mask(struct nvt_request *request)
{
    const struct nvt_namespace *ns = feature_namespace(request);
    if (!ns)
        return NVME_SC_INVALID_NS | NVME_SC_DNR;
    request->result = request->queue->ctrl->reservation_masks[ns->nsid];
    return 0;
}

/* A group of targets keeps it, or nothing does: the host cannot choose. */
uint16_t nvt_resv_persistence(struct nvt_request *request, bool sets)
{
    const struct nvt_namespace *ns = feature_namespace(request);
    const bool is_of_all = sets && le32toh(request->sqe.nsid) == NVME_NSID_ALL;
    if (!ns && !is_of_all)
        return NVME_SC_INVALID_NS | NVME_SC_DNR;
    const bool persists =
        ns ? ns->reservation.persists : request->queue->ctrl->subsystem->is_grouped;
    if (sets && (le32toh(request->sqe.cdw11) & PERSISTS) != (uint32_t)persists)
        return NVF_SPECIFIC(NVME_SC_FEATURE_NOT_CHANGEABLE) | NVME_SC_DNR;
    if (!sets)
        request->result = persists;
    return 0;
}
