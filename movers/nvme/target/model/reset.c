/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/reset.h"

#include <assert.h>
#include <string.h>
#include <sys/random.h>

#include "common/time/clock.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/request.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/model/target.h"

enum { GIVE_UP_MS = 60000 }; /* a reset that another target does not answer: nobody can tell */

/* Drawn: who knows it has read it at that very controller. 0 is none, also if no number can be
 * drawn: no host knows such a controller, so nobody resets it. */
struct nvt_instance nvt_instance_new(struct nvt_subsystem *subsystem, uint16_t cntlid)
{
    struct nvt_instance instance = {.cntlid = cntlid, .ciu = ++subsystem->last_ciu};
    if (getrandom(&instance.cirn, sizeof(instance.cirn), 0) != sizeof(instance.cirn))
        instance.cirn = 0;
    return instance;
}

/* ---- how far one is ---- */

static bool is_of_same_host(const struct nvt_ctrl *ctrl, const struct nvt_lost *lost)
{
    return !strcmp(ctrl->host_nqn, lost->host_nqn) &&
           !memcmp(&ctrl->host_id, &lost->host_id, sizeof(ctrl->host_id));
}

/* One of its queues has ended, and a backend still has a command of it. */
static bool has_lingering_queue(const struct nvt_target *target, const struct nvt_instance *of)
{
    for (struct list_node *node = list_first(&target->lingering); node;
         node = list_after(&target->lingering, node)) {
        const struct nvt_queue *queue = LIST_MEMBER(node, struct nvt_queue, linger);
        if (queue->under_way && nvt_instance_is(&queue->instance, of))
            return true;
    }
    return false;
}

static bool was_here(const struct nvt_subsystem *subsystem, const struct nvt_instance *of)
{
    for (uint32_t i = 0; i < NVT_GONE_KEPT; i++)
        if (nvt_instance_is(&subsystem->gone[i], of))
            return true;
    return false;
}

static enum nvt_quiet look_at_instance(struct nvt_subsystem *subsystem,
                                       const struct nvt_instance *of)
{
    const struct nvt_ctrl *ctrl = nvt_ctrl_find(subsystem, of->cntlid);
    if ((ctrl && nvt_instance_is(&ctrl->instance, of)) ||
        has_lingering_queue(subsystem->target, of))
        return NVT_QUIET_LATER;
    return was_here(subsystem, of) ? NVT_QUIET : NVT_QUIET_UNKNOWN;
}

enum nvt_quiet nvt_lost_quiesce(struct nvt_subsystem *subsystem, const struct nvt_lost *lost)
{
    struct nvt_ctrl *ctrl = nvt_ctrl_find(subsystem, lost->instance.cntlid);
    if (ctrl && nvt_instance_is(&ctrl->instance, &lost->instance)) {
        if (!is_of_same_host(ctrl, lost))
            return NVT_QUIET_REFUSED;
        nvt_ctrl_drop(ctrl);
    }
    return look_at_instance(subsystem, &lost->instance);
}

bool nvt_ctrls_calm(struct nvt_subsystem *subsystem, uint64_t serial)
{
    bool is_calm = true;
    for (struct list_node *node = list_first(&subsystem->ctrls); node;
         node = list_after(&subsystem->ctrls, node)) {
        struct nvt_ctrl *ctrl = LIST_MEMBER(node, struct nvt_ctrl, node);
        if (ctrl->serial > serial)
            continue;
        nvt_ctrl_drop(ctrl);
        is_calm = false;
    }
    for (struct list_node *node = list_first(&subsystem->target->lingering); node;
         node = list_after(&subsystem->target->lingering, node)) {
        const struct nvt_queue *queue = LIST_MEMBER(node, struct nvt_queue, linger);
        is_calm = is_calm && !(queue->under_way && queue->ctrl_serial <= serial);
    }
    return is_calm;
}

/* ---- what hosts have asked for ---- */

static struct nvt_reset *find_reset(struct nvt_ctrl *ctrl, const struct nvt_instance *of)
{
    for (int i = 0; i < NVT_RESETS_KEPT; i++)
        if (nvt_instance_is(&ctrl->resets[i].of, of))
            return &ctrl->resets[i];
    return NULL;
}

static uint32_t resets_under_way(const struct nvt_ctrl *ctrl)
{
    uint32_t count = 0;
    for (int i = 0; i < NVT_RESETS_KEPT; i++)
        count += ctrl->resets[i].of.cirn && ctrl->resets[i].status == NVF_CCR_IN_PROGRESS;
    return count;
}

/* A place that is free, or that of the reset that ended first: there are more places than resets at
 * a time. */
static struct nvt_reset *place_for_reset(struct nvt_ctrl *ctrl)
{
    struct nvt_reset *oldest = NULL;
    static_assert((int)NVT_RESETS_KEPT > (int)NVT_RESETS_AT_ONCE, "one is free, or has ended");
    for (int i = 0; i < NVT_RESETS_KEPT; i++) {
        struct nvt_reset *reset = &ctrl->resets[i];
        if (!reset->of.cirn)
            return reset;
        if (reset->status != NVF_CCR_IN_PROGRESS && (!oldest || reset->asked_ns < oldest->asked_ns))
            oldest = reset;
    }
    assert(oldest);
    return oldest;
}

static void settle_reset(struct nvt_ctrl *ctrl, struct nvt_reset *reset, enum nvt_quiet quiet)
{
    if (quiet == NVT_QUIET_LATER || reset->status != NVF_CCR_IN_PROGRESS)
        return;
    reset->status = quiet == NVT_QUIET ? NVF_CCR_SUCCESS : NVF_CCR_FAILED;
    ctrl->subsystem->target->resets_under_way--;
    nvt_ctrl_notify(ctrl, NVT_EVENT_RESET);
}

static void look_at_resets(struct nvt_ctrl *ctrl, void *arg)
{
    const uint64_t now_ns = *(const uint64_t *)arg;
    for (int i = 0; i < NVT_RESETS_KEPT && ctrl->subsystem->target->resets_under_way; i++) {
        struct nvt_reset *reset = &ctrl->resets[i];
        if (!reset->of.cirn || reset->status != NVF_CCR_IN_PROGRESS)
            continue;
        if (!reset->is_elsewhere)
            settle_reset(ctrl, reset, look_at_instance(ctrl->subsystem, &reset->of));
        else if (now_ns > reset->asked_ns + GIVE_UP_MS * NS_PER_MS)
            settle_reset(ctrl, reset, NVT_QUIET_REFUSED);
    }
}

void nvt_resets_look(struct nvt_target *target)
{
    if (target->resets_under_way)
        nvt_target_each_ctrl(target, look_at_resets, &target->now_ns);
}

void nvt_reset_elsewhere_done(struct nvt_subsystem *subsystem, const struct nvt_instance *of,
                              enum nvt_quiet quiet)
{
    for (struct list_node *node = list_first(&subsystem->ctrls); node;
         node = list_after(&subsystem->ctrls, node)) {
        struct nvt_ctrl *ctrl = LIST_MEMBER(node, struct nvt_ctrl, node);
        struct nvt_reset *reset = find_reset(ctrl, of);
        if (reset && reset->is_elsewhere)
            settle_reset(ctrl, reset, quiet);
    }
}

void nvt_resets_end(struct nvt_ctrl *ctrl)
{
    struct nvt_subsystem *subsystem = ctrl->subsystem;
    subsystem->target->resets_under_way -= resets_under_way(ctrl);
    subsystem->gone[subsystem->gone_at++ % NVT_GONE_KEPT] = ctrl->instance;
}

/* ---- the command ---- */

static struct nvt_lost lost_of(const struct nvt_request *request)
{
    const struct nvt_ctrl *ctrl = request->queue->ctrl;
    const uint32_t cdw10 = le32toh(request->sqe.cdw10);
    struct nvt_lost lost = {.instance = {.cntlid = (uint16_t)(cdw10 & 0xffff),
                                         .ciu = (uint8_t)(cdw10 >> 16),
                                         .cirn = (uint64_t)le32toh(request->sqe.cdw13) << 32 |
                                                 le32toh(request->sqe.cdw12)},
                            .host_id = ctrl->host_id};
    memcpy(lost.host_nqn, ctrl->host_nqn, sizeof(lost.host_nqn));
    return lost;
}

/* One that was never here, or that was an earlier process of this member: the group may know more
 * of it. */
static enum nvt_quiet ask_for_quiet(struct nvt_ctrl *ctrl, const struct nvt_lost *lost,
                                    bool *is_elsewhere)
{
    struct nvt_subsystem *subsystem = ctrl->subsystem;
    const uint16_t cntlid = lost->instance.cntlid;
    const bool is_here = cntlid >= subsystem->cntlid_min && cntlid <= subsystem->cntlid_max;
    const enum nvt_quiet quiet = is_here ? nvt_lost_quiesce(subsystem, lost) : NVT_QUIET_UNKNOWN;
    *is_elsewhere = quiet == NVT_QUIET_UNKNOWN;
    if (quiet != NVT_QUIET_UNKNOWN)
        return quiet;
    if (!subsystem->resets.ask || subsystem->resets.ask(subsystem, lost))
        return NVT_QUIET_UNKNOWN;
    return NVT_QUIET_LATER;
}

static uint16_t model_begin_reset(struct nvt_request *request, const struct nvt_lost *lost)
{
    struct nvt_ctrl *ctrl = request->queue->ctrl;
    struct nvt_reset *reset = find_reset(ctrl, &lost->instance);
    bool is_elsewhere;
    if (!lost->instance.cirn || lost->instance.cntlid == ctrl->instance.cntlid)
        return NVME_SC_INVALID_FIELD | NVME_SC_DNR;
    if (reset && reset->status == NVF_CCR_IN_PROGRESS)
        return NVF_SC_CCR_IN_PROGRESS | NVME_SC_DNR;
    if (resets_under_way(ctrl) >= NVT_RESETS_AT_ONCE)
        return NVF_SC_CCR_LIMIT;
    const enum nvt_quiet quiet = ask_for_quiet(ctrl, lost, &is_elsewhere);
    if (quiet == NVT_QUIET_UNKNOWN || quiet == NVT_QUIET_REFUSED)
        return NVME_SC_INVALID_FIELD | NVME_SC_DNR;
    if (quiet == NVT_QUIET) {
        request->result = NVF_CCR_IMMEDIATE;
        return 0;
    }
    if (!reset)
        reset = place_for_reset(ctrl);
    *reset = (struct nvt_reset){.is_elsewhere = is_elsewhere,
                                .status = NVF_CCR_IN_PROGRESS,
                                .asked_ns = ctrl->subsystem->target->now_ns,
                                .of = lost->instance};
    ctrl->subsystem->target->resets_under_way++;
    return 0;
}

void nvt_run_reset(struct nvt_request *request)
{
    const struct nvt_lost lost = lost_of(request);
    nvt_request_finish(request, model_begin_reset(request, &lost));
}

/* An entry stays until its place is needed: a host that asks about one reset reads all. */
void nvt_reset_log(struct nvt_request *request, uint64_t offset)
{
    const struct nvt_ctrl *ctrl = request->queue->ctrl;
    struct nvf_ccr_entry entries[NVT_RESETS_KEPT] = {0};
    uint8_t page[sizeof(struct nvf_ccr_log) + sizeof(entries)] = {0};
    uint16_t count = 0;
    for (int i = 0; i < NVT_RESETS_KEPT; i++) {
        const struct nvt_reset *reset = &ctrl->resets[i];
        if (reset->of.cirn)
            entries[count++] = (struct nvf_ccr_entry){.icid = htole16(reset->of.cntlid),
                                                      .ciu = reset->of.ciu,
                                                      .acid = htole16(ctrl->instance.cntlid),
                                                      .ccrs = (uint8_t)reset->status,
                                                      .cirn = htole64(reset->of.cirn)};
    }
    const struct nvf_ccr_log header = {.entries_count = htole16(count)};
    memcpy(page, &header, sizeof(header));
    memcpy(page + sizeof(header), entries, sizeof(entries));
    nvt_request_put(request, page, sizeof(header) + count * sizeof(entries[0]), offset);
}
