/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/holding.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/time/clock.h"
#include "nvme/target/backend/backend.h"
#include "nvme/target/backend/device_key.h"
#include "nvme/target/backend/disk.h"
#include "nvme/target/backend/standby.h"
#include "nvme/target/model/commit.h"
#include "nvme/target/model/namespace.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/server/member.h"
#include "nvme/target/server/server.h"

enum { SAID_S = 60, FENCE_MS = 5000, OPEN_MS = 2000 /* in which hosts wait */ };

/* The medium is fenced by a thread that may wait; what it uses is its own. */
struct nvr_taking {
    struct nvt_job job;
    struct nvr_holding *holding; /* NULL: nobody wants it any more */
    bool is_given_up;            /* the group wants the namespace back once the fence has ended */
    struct nvt_backend_spec spec;
    char medium[NVT_MEDIUM_BYTES];
    struct nvr_formers formers;
    int rc;
    char why[NVR_WHY_BYTES];
};

const char *nvr_holding_state_name(enum nvr_holding_state state)
{
    static const char *const names[] = {[NVR_STANDBY] = "standby",
                                        [NVR_TAKING] = "taking",
                                        [NVR_TAKEN] = "taken",
                                        [NVR_SERVING] = "serving",
                                        [NVR_RESTING] = "resting"};
    return names[state];
}

bool nvr_trouble_is_new(struct nvr_trouble *trouble, const char *why)
{
    const uint64_t now_ns = mover_now_ns();
    if (trouble->said_ns && now_ns - trouble->said_ns < SAID_S * NS_PER_S &&
        !strcmp(trouble->why, why))
        return false;
    trouble->said_ns = now_ns;
    snprintf(trouble->why, sizeof(trouble->why), "%s", why);
    return true;
}

static struct nvt_namespace *namespace_at(const struct nvr_holding *holding)
{
    const struct nvt_subsystem *subsystem = holding->member->subsystem;
    return subsystem ? subsystem->namespaces[holding->nsid] : NULL;
}

static void set_ana(const struct nvr_holding *holding, enum nvme_ana_state state)
{
    nvt_subsystem_set_ana(holding->member->subsystem, holding->nsid, state, holding->epoch);
}

/* ---- reservations ---- */

static int holding_propose(struct nvt_commits *commits, const struct nvt_reservation *proposed,
                           uint64_t id)
{
    const struct nvr_holding *holding = commits->context;
    return nvg_reserve(holding->member->group, holding->nsid, holding->epoch, proposed, id);
}

/* ---- giving up ---- */

/* The medium is closed. */
static void note_rested(struct nvt_namespace *ns)
{
    struct nvr_holding *holding = ns->commits->context;
    struct nvr_member *member = holding->member;
    const bool is_lost = holding->is_lost;
    holding->state = NVR_STANDBY;
    holding->is_lost = false;
    if (is_lost)
        nvg_lost(member->group, holding->nsid, holding->epoch, "another one has the medium");
    else
        nvg_released(member->group, holding->nsid, holding->epoch);
    nvr_member_say(member, is_lost, "namespace %-4u %s", holding->nsid,
                   is_lost ? "is lost: another target has it" : "given up");
}

static void end_recovery(struct nvr_holding *holding)
{
    if (holding->is_recovering)
        nvt_uring_remove_poller(&holding->recovery);
    holding->is_recovering = false;
}

static void begin_rest(struct nvr_holding *holding, bool is_lost)
{
    end_recovery(holding);
    struct nvt_namespace *ns = namespace_at(holding);
    struct nvt_backend *standby =
        nvt_standby_open(ns->blocks << ns->block_shift, 1u << ns->block_shift, false);
    holding->state = NVR_RESTING;
    holding->is_lost = is_lost;
    set_ana(holding, NVME_ANA_STATE_INACCESSIBLE);
    if (!standby) {
        nvr_member_fail(holding->member, "no memory");
        return;
    }
    nvt_namespace_rest(ns, standby);
}

/* A fence that has begun goes on. */
static void drop_taking(struct nvr_holding *holding)
{
    struct nvr_taking *taking = holding->taking;
    holding->taking = NULL;
    if (!taking)
        return;
    if (nvt_worker_cancel(&holding->member->fencer, &taking->job))
        free(taking);
    else
        taking->holding = NULL;
}

/* It holds nothing. */
static void tell_released(struct nvr_holding *holding)
{
    holding->state = NVR_STANDBY;
    set_ana(holding, NVME_ANA_STATE_INACCESSIBLE);
    nvg_released(holding->member->group, holding->nsid, holding->epoch);
}

/* The next owner must not meet a fence of ours. */
static void give_up_taking(struct nvr_holding *holding)
{
    struct nvr_taking *taking = holding->taking;
    if (taking && !nvt_worker_cancel(&holding->member->fencer, &taking->job)) {
        taking->is_given_up = true;
        return;
    }
    holding->taking = NULL;
    free(taking);
    tell_released(holding);
}

void nvr_holding_release(struct nvr_holding *holding, uint64_t epoch)
{
    if (epoch < holding->epoch)
        return;
    switch (holding->state) {
    case NVR_TAKEN:
    case NVR_SERVING:
        begin_rest(holding, false);
        break;
    case NVR_RESTING: /* the end of that says it */
        break;
    case NVR_TAKING:
        give_up_taking(holding);
        break;
    case NVR_STANDBY:
        holding->epoch = epoch;
        tell_released(holding);
        break;
    }
}

void nvr_holding_stand_by(struct nvr_holding *holding, uint64_t epoch)
{
    if (epoch < holding->epoch)
        return;
    if (holding->state == NVR_TAKEN || holding->state == NVR_SERVING)
        return begin_rest(holding, true); /* it was taken from us: what is open is of no use */
    drop_taking(holding);
    holding->epoch = epoch;
    if (holding->state == NVR_TAKING)
        holding->state = NVR_STANDBY;
    set_ana(holding, NVME_ANA_STATE_INACCESSIBLE);
}

/* ---- taking ---- */

static void fail_to_take(struct nvr_holding *holding, const char *why)
{
    holding->state = NVR_STANDBY;
    set_ana(holding, NVME_ANA_STATE_INACCESSIBLE);
    if (nvr_trouble_is_new(&holding->trouble, why))
        nvr_member_say(holding->member, true, "namespace %u: cannot be taken: %s", holding->nsid,
                       why);
    nvg_failed(holding->member->group, holding->nsid, holding->epoch);
}

void nvr_holding_give_keys(const struct nvr_holding *holding, struct nvt_backend_spec *spec)
{
    const struct nvg_identity *group = nvg_identity_of(holding->member->group);
    if (spec->unfenced)
        return;
    spec->reserve_key =
        spec->is_for_all ? nvt_device_member_key(group->identity, group->slot, group->incarnation)
                         : nvt_device_key(group->identity, group->slot, holding->epoch);
    spec->idle_key = nvt_device_idle_key(group->identity);
}

static int open_medium(const struct nvr_holding *holding, struct nvt_backend **out, char *why,
                       size_t why_bytes)
{
    struct nvt_namespace *ns = namespace_at(holding);
    struct nvt_uring *uring = &holding->member->server->threads[0].uring;
    struct nvt_backend *backend;
    struct nvt_backend_spec spec = *holding->spec;
    spec.block_bytes = 1u << ns->block_shift;
    spec.wait_ms = OPEN_MS;
    spec.hands_over = true;
    nvr_holding_give_keys(holding, &spec);
    const int rc = nvt_backend_open(&spec, uring, &backend, why, why_bytes);
    if (rc)
        return rc;
    if (backend->block_bytes != spec.block_bytes || !backend->size_bytes) {
        snprintf(why, why_bytes, "its blocks have %u bytes, and those of the group %u",
                 backend->block_bytes, spec.block_bytes);
        backend->ops->close(backend);
        return -EINVAL;
    }
    *out = backend;
    return 0;
}

static void tell_group_taken(struct nvr_holding *holding)
{
    nvg_taken(holding->member->group, holding->nsid, holding->epoch, holding->told_bytes);
}

/* Until then hosts are told that the access changes, and wait, or try elsewhere. */
static bool look_at_recovery(struct nvt_poller *poller)
{
    struct nvr_holding *holding = LIST_MEMBER(poller, struct nvr_holding, recovery);
    if (!nvt_backend_is_ready(namespace_at(holding)->backend))
        return false;
    end_recovery(holding);
    tell_group_taken(holding);
    return true;
}

static void begin_recovery(struct nvr_holding *holding)
{
    holding->is_recovering = true;
    holding->recovery.poll = look_at_recovery;
    nvt_uring_add_poller(&holding->member->server->threads[0].uring, &holding->recovery);
}

static void finish_taking(struct nvr_holding *holding, struct nvr_taking *taking)
{
    struct nvt_backend *backend;
    holding->taking = NULL;
    if (taking->is_given_up) {
        if (!taking->rc)
            nvt_fence_undo(&taking->spec);
        return tell_released(holding);
    }
    if (!taking->rc) {
        taking->rc = open_medium(holding, &backend, taking->why, sizeof(taking->why));
        if (taking->rc)
            nvt_fence_undo(&taking->spec);
    }
    if (taking->rc)
        return fail_to_take(holding, taking->why);
    nvt_namespace_wake(namespace_at(holding), backend);
    holding->state = NVR_TAKEN;
    nvr_holding_hear_of_disk(holding, holding->disk_error);
    holding->told_bytes = backend->size_bytes;
    if (nvt_backend_is_ready(backend))
        tell_group_taken(holding);
    else
        begin_recovery(holding);
}

static void taking_work(struct nvt_job *job)
{
    struct nvr_taking *taking = (struct nvr_taking *)job;
    taking->rc = nvt_fence(&taking->spec, taking->formers.all, taking->formers.count, FENCE_MS,
                           taking->why, sizeof(taking->why));
    if (!taking->rc)
        taking->rc =
            nvt_fence_look_again(&taking->spec, taking->medium, taking->why, sizeof(taking->why));
}

static void taking_done(struct nvt_job *job)
{
    struct nvr_taking *taking = (struct nvr_taking *)job;
    if (taking->holding)
        finish_taking(taking->holding, taking);
    else if (!taking->rc)
        nvt_fence_undo(&taking->spec);
    free(taking);
}

static uint64_t key_of_former(const struct nvr_member *member, const struct nvg_former *former)
{
    const uint8_t *identity = nvg_identity_of(member->group)->identity;
    return member->is_all_active
               ? nvt_device_member_key(identity, former->slot, former->incarnation)
               : nvt_device_key(identity, former->slot, former->epoch);
}

void nvr_formers_take(struct nvr_formers *formers, const struct nvr_member *member,
                      const struct nvg_event *event)
{
    formers->count = event->former_count;
    for (uint32_t i = 0; i < event->former_count; i++) {
        const struct nvg_former *from = &event->formers[i];
        memcpy(formers->names[i], from->member, sizeof(formers->names[i]));
        formers->all[i] = (struct nvt_former){.name = formers->names[i],
                                              .pid = from->pid,
                                              .start_ticks = from->start_ticks,
                                              .key = key_of_former(member, from),
                                              .process = from->incarnation};
        memcpy(formers->all[i].boot_id, from->boot_id, sizeof(from->boot_id));
    }
}

static struct nvr_taking *plan_taking(struct nvr_holding *holding, const struct nvg_event *event)
{
    struct nvr_taking *taking = calloc(1, sizeof(*taking));
    if (!taking)
        return NULL;
    taking->job = (struct nvt_job){
        .owner = "group", .is_trusted = true, .work = taking_work, .done = taking_done};
    taking->holding = holding;
    taking->spec = *holding->spec;
    nvr_holding_give_keys(holding, &taking->spec);
    memcpy(taking->medium, holding->medium, sizeof(taking->medium));
    nvr_formers_take(&taking->formers, holding->member, event);
    return taking;
}

void nvr_holding_take(struct nvr_holding *holding, const struct nvg_event *event)
{
    drop_taking(holding);
    holding->epoch = event->epoch;
    if (holding->state != NVR_STANDBY && holding->state != NVR_TAKING)
        return fail_to_take(holding, "this member has not given it up yet");
    holding->taking = plan_taking(holding, event);
    if (!holding->taking || !nvt_worker_give(&holding->member->fencer, &holding->taking->job)) {
        free(holding->taking);
        holding->taking = NULL;
        return fail_to_take(holding, "no memory");
    }
    holding->state = NVR_TAKING;
    set_ana(holding, NVME_ANA_STATE_CHANGE);
}

void nvr_holding_serve(struct nvr_holding *holding, const struct nvg_event *event)
{
    struct nvt_namespace *ns = namespace_at(holding);
    if (holding->state != NVR_TAKEN || event->epoch != holding->epoch)
        return;
    ns->reservation = event->reservation;
    ns->reservation.persists = true;
    holding->state = NVR_SERVING;
    holding->trouble.said_ns = 0;
    set_ana(holding, NVME_ANA_STATE_OPTIMIZED);
    nvr_member_say(holding->member, false, "namespace %-4u taken, epoch %llu", holding->nsid,
                   (unsigned long long)holding->epoch);
}

/* ---- what it is made of ---- */

int nvr_holding_begin(struct nvr_holding *holding, struct nvt_namespace *ns)
{
    holding->told_bytes = ns->blocks << ns->block_shift;
    ns->rested = note_rested;
    return nvt_commits_open(ns, holding_propose, holding);
}

void nvr_holding_resize(struct nvr_holding *holding, uint64_t size_bytes)
{
    struct nvt_namespace *ns = namespace_at(holding);
    if (holding->state != NVR_STANDBY && holding->state != NVR_TAKING)
        return;
    struct nvt_backend *standby = nvt_standby_open(size_bytes, 1u << ns->block_shift, false);
    if (standby)
        nvt_namespace_wake(ns, standby);
}

/* What a tier's file has failed is in its log still, and the next owner does it again. */
static struct nvt_disk *holding_disk(const struct nvr_holding *holding)
{
    return holding->spec->kind == NVT_BACKEND_TIER ? NULL : namespace_at(holding)->backend->watched;
}

void nvr_holding_hear_of_disk(struct nvr_holding *holding, uint32_t error)
{
    const bool is_news = error != holding->disk_error;
    holding->disk_error = error;
    if (error || is_news)
        nvt_disk_hear(holding_disk(holding), (int)error);
}

void nvr_holding_look_at_disk(struct nvr_holding *holding)
{
    const struct nvt_disk *disk = holding_disk(holding);
    const int error = disk ? nvt_disk_error(disk) : 0;
    if (error && !holding->disk_error)
        (void)nvg_disk(holding->member->group, holding->nsid, (uint32_t)error);
}

void nvr_holding_tick(struct nvr_holding *holding)
{
    const struct nvt_namespace *ns = namespace_at(holding);
    nvt_commits_tick(ns->commits, holding->member->server->target.now_ns);
    if (holding->state != NVR_SERVING)
        return;
    if (nvt_backend_lost(ns->backend))
        return begin_rest(holding, true);
    nvr_holding_look_at_disk(holding);
    const uint64_t size_bytes = ns->blocks << ns->block_shift;
    if (size_bytes == holding->told_bytes)
        return;
    holding->told_bytes = size_bytes;
    nvg_resized(holding->member->group, holding->nsid, holding->epoch, size_bytes);
}
