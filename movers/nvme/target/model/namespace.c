/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/namespace.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/target/backend/backend.h"
#include "nvme/target/backend/claim.h"
#include "nvme/target/backend/disk.h"
#include "nvme/target/config/config.h"
#include "nvme/target/model/commit.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/model/target.h"

enum { LINE_BYTES = 64 };
static_assert(sizeof(struct nvt_tally) == LINE_BYTES, "threads do not write to the same line");

static void note_changed(struct nvt_ctrl *ctrl, void *arg)
{
    const struct nvt_namespace *ns = arg;
    if (ctrl->subsystem != ns->subsystem)
        return;
    bool is_there = false;
    for (uint32_t i = 0; i < ctrl->changed_count && i < NVT_NSID_MAX; i++)
        is_there = is_there || ctrl->changed[i] == ns->nsid;
    if (!is_there && ctrl->changed_count < NVT_NSID_MAX)
        ctrl->changed[ctrl->changed_count++] = ns->nsid;
    else if (!is_there)
        ctrl->changed_count = NVT_NSID_MAX + 1;
    nvt_ctrl_notify(ctrl, NVT_EVENT_NAMESPACES);
}

int nvt_namespace_add(struct nvt_subsystem *subsystem, const struct nvt_config_namespace *config,
                      struct nvt_backend *backend, struct nvt_namespace **out)
{
    const uint32_t nsid = config->nsid;
    const bool is_free = nsid && nsid <= NVT_NSID_MAX && !subsystem->namespaces[nsid];
    struct nvt_namespace *ns = is_free ? aligned_alloc(LINE_BYTES, sizeof(*ns)) : NULL;
    char *opened = strdup(config->backend ? config->backend : "");
    if (!ns || !opened) {
        free(ns);
        free(opened);
        backend->ops->close(backend);
        return is_free ? -ENOMEM : -EEXIST;
    }
    *ns = (struct nvt_namespace){
        .target = subsystem->target,
        .subsystem = subsystem,
        .nsid = nsid,
        .ana_group = config->ana_grpid ? config->ana_grpid : 1,
        .backend = backend,
        .opened = opened,
        .block_shift = (uint8_t)__builtin_ctz(backend->block_bytes),
        .is_read_only = backend->is_read_only,
        .region = {.base = backend->memory, .len_bytes = backend->size_bytes}};
    ns->blocks = backend->size_bytes >> ns->block_shift;
    if (backend->watched)
        nvt_disk_name(backend->watched, subsystem->nqn, nsid);
    list_init(&ns->preemptors);
    memcpy(ns->uuid, config->uuid, sizeof(ns->uuid));
    memcpy(ns->nguid, config->has_nguid ? config->nguid : config->uuid, sizeof(ns->nguid));
    subsystem->namespaces[nsid] = ns;
    subsystem->namespace_count++;
    nvt_target_each_ctrl(subsystem->target, note_changed, ns);
    if (out)
        *out = ns;
    return 0;
}

static void close_backend(struct nvt_namespace *ns)
{
    if (ns->backend->memory)
        ns->target->transport->forget(&ns->region);
    ns->backend->ops->close(ns->backend);
}

static void close_namespace(struct nvt_namespace *ns)
{
    close_backend(ns);
    nvt_commits_close(ns->commits);
    free(ns->opened);
    free(ns);
}

static void note_left(struct nvt_io *io, uint16_t status)
{
    (void)status; /* the backend has said what is wrong */
    LIST_MEMBER(io, struct nvt_namespace, leave)->may_close = true;
}

static void begin_to_leave(struct nvt_namespace *ns)
{
    struct nvt_target *target = ns->target;
    ns->leave = (struct nvt_io){
        .uring = target->threads[0].uring, .slices = &target->threads[0].slices, .done = note_left};
    ns->is_leaving = true;
    list_append(&target->leaving, &ns->node);
    ns->backend->ops->leave(ns->backend, &ns->leave);
}

/* No thread has it any more. */
static void free_namespace(struct nvt_namespace *ns)
{
    struct nvt_target *target = ns->target;
    if (ns->is_resting) {
        ns->next->ops->close(ns->next);
        ns->is_resting = false;
        target->serial--;
    }
    target->serial--;
    if (ns->is_leaving) /* it was to rest */
        return;
    if (!ns->backend->ops->leave)
        return close_namespace(ns);
    begin_to_leave(ns);
}

static void put_to_rest(struct nvt_namespace *ns);

void nvt_namespace_sweep(struct nvt_target *target)
{
    struct list_node *next;
    for (struct list_node *node = list_first(&target->leaving); node; node = next) {
        struct nvt_namespace *ns = LIST_MEMBER(node, struct nvt_namespace, node);
        next = list_after(&target->leaving, node);
        if (!ns->may_close)
            continue;
        list_remove(node);
        ns->is_leaving = ns->may_close = false;
        if (ns->is_resting)
            put_to_rest(ns);
        else
            close_namespace(ns);
    }
}

void nvt_namespace_remove_slow(struct nvt_target *target)
{
    for (struct list_node *node = list_first(&target->subsystems); node;
         node = list_after(&target->subsystems, node)) {
        struct nvt_subsystem *subsystem = LIST_MEMBER(node, struct nvt_subsystem, node);
        for (uint32_t nsid = 1; nsid <= NVT_NSID_MAX; nsid++)
            if (subsystem->namespaces[nsid] && subsystem->namespaces[nsid]->backend->ops->leave)
                nvt_namespace_remove(subsystem->namespaces[nsid]);
    }
}

void nvt_namespace_remove(struct nvt_namespace *ns)
{
    struct nvt_subsystem *subsystem = ns->subsystem;
    subsystem->namespaces[ns->nsid] = NULL;
    subsystem->namespace_count--;
    nvt_commits_drop(ns->commits, NVME_SC_INVALID_NS | NVME_SC_DNR);
    ns->is_removed = true;
    nvt_claim_leave(ns->backend->claim);
    nvt_target_each_ctrl(subsystem->target, note_changed, ns);
    ns->target->serial++; /* who still has it sees when the last request is over */
    if (!nvt_namespace_sum(ns).users)
        return free_namespace(ns);
    for (uint32_t i = 0; i < subsystem->target->thread_count; i++)
        nvt_thread_end_unwanted(&subsystem->target->threads[i]);
}

struct nvt_tally nvt_namespace_sum(const struct nvt_namespace *ns)
{
    struct nvt_tally sum = {0};
    for (uint32_t i = 0; i < ns->target->thread_count; i++) {
        const struct nvt_tally *tally = &ns->tallies[i];
        sum.users += tally->users;
        sum.reads += tally->reads;
        sum.writes += tally->writes;
        sum.read_blocks += tally->read_blocks;
        sum.written_blocks += tally->written_blocks;
    }
    return sum;
}

/* ---- a namespace that other targets serve, too ---- */

static void put_backend(struct nvt_namespace *ns, struct nvt_backend *backend)
{
    assert(backend->block_bytes == 1u << ns->block_shift);
    ns->backend = backend;
    ns->region = (struct mover_region){.base = backend->memory, .len_bytes = backend->size_bytes};
    ns->is_read_only = ns->is_read_only || backend->is_read_only;
    const uint64_t blocks = backend->size_bytes >> ns->block_shift;
    if (backend->watched)
        nvt_disk_name(backend->watched, ns->subsystem->nqn, ns->nsid);
    if (blocks == ns->blocks)
        return;
    ns->blocks = blocks;
    nvt_target_each_ctrl(ns->target, note_changed, ns);
}

void nvt_namespace_wake(struct nvt_namespace *ns, struct nvt_backend *backend)
{
    assert(!ns->is_resting && !ns->is_removed);
    close_backend(ns);
    put_backend(ns, backend);
}

static void put_to_rest(struct nvt_namespace *ns)
{
    close_backend(ns);
    put_backend(ns, ns->next);
    ns->next = NULL;
    ns->is_resting = false;
    ns->target->serial--;
    if (ns->rested)
        ns->rested(ns);
}

static void come_to_rest(struct nvt_namespace *ns)
{
    if (ns->is_leaving)
        return;
    if (ns->backend->ops->leave)
        begin_to_leave(ns);
    else
        put_to_rest(ns);
}

void nvt_namespace_rest(struct nvt_namespace *ns, struct nvt_backend *standby)
{
    assert(!ns->is_resting && !ns->is_removed);
    nvt_commits_drop(ns->commits, NVF_PATH(NVME_SC_ANA_INACCESSIBLE));
    ns->is_resting = true;
    ns->next = standby;
    ns->target->serial++; /* who still has it sees when the last request is over */
    if (!nvt_namespace_sum(ns).users)
        return come_to_rest(ns);
    for (uint32_t i = 0; i < ns->target->thread_count; i++)
        nvt_thread_end_unwanted(&ns->target->threads[i]);
}

void nvt_namespace_release(struct nvt_namespace *ns, const struct nvt_thread *thread)
{
    ns->tallies[thread->number].users--;
    if ((!ns->is_removed && !ns->is_resting) || nvt_namespace_sum(ns).users)
        return;
    if (ns->is_removed)
        free_namespace(ns);
    else
        come_to_rest(ns);
}

void nvt_namespace_refresh(struct nvt_namespace *ns)
{
    if (!ns->backend->ops->size_bytes)
        return;
    const uint64_t blocks = ns->backend->ops->size_bytes(ns->backend) >> ns->block_shift;
    if (blocks == ns->blocks)
        return;
    ns->blocks = blocks;
    ns->backend->size_bytes = blocks << ns->block_shift;
    nvt_target_each_ctrl(ns->subsystem->target, note_changed, ns);
}

static bool is_of_subsystem(const struct nvt_ctrl *ctrl, const void *what)
{
    return ctrl->subsystem == what;
}

void nvt_namespace_set_group(struct nvt_namespace *ns, uint32_t ana_group)
{
    struct nvt_target *target = ns->subsystem->target;
    ns->ana_group = ana_group;
    target->ana_changes++;
    nvt_target_notify(target, NVT_EVENT_ANA, is_of_subsystem, ns->subsystem);
}
