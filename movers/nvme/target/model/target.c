/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/target.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/time/clock.h"
#include "nvme/target/backend/backend.h"
#include "nvme/target/backend/uring.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/namespace.h"
#include "nvme/target/model/port.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/reset.h"
#include "nvme/target/model/share.h"
#include "nvme/target/model/subsystem.h"

#define TICK_MS 100ull
#define REFRESH_MS 1000ull /* how often files are looked at: they may have grown */

int nvt_target_add_thread(struct nvt_target *target, size_t pool_bytes)
{
    assert(target->thread_count < NVT_THREADS_MAX);
    struct nvt_thread *thread = &target->threads[target->thread_count];
    *thread = (struct nvt_thread){.number = target->thread_count};
    nvt_shares_init(&thread->shares, &thread->pool);
    list_init(&thread->to_feed);
    nvt_slices_init(&thread->slices);
    int rc = nvt_parts_open(&thread->compares);
    if (!rc)
        rc = mover_pool_init(&thread->pool, pool_bytes);
    if (rc)
        nvt_parts_close(&thread->compares);
    target->thread_count += !rc;
    return rc;
}

int nvt_target_init(struct nvt_target *target, const struct nvt_transport *transport,
                    size_t pool_bytes)
{
    static const struct nvt_config_subsystem config = {
        .nqn.text = NVF_DISCOVERY_NQN, .model = "Sidewire", .allow_any_host = true};
    memset(target, 0, sizeof(*target));
    target->transport = transport;
    list_init(&target->subsystems);
    list_init(&target->ports);
    list_init(&target->leaving);
    list_init(&target->lingering);
    pthread_mutex_init(&target->error_lock, NULL);
    const int rc = nvt_target_add_thread(target, pool_bytes);
    if (rc)
        return rc;
    struct nvt_subsystem *discovery = nvt_subsystem_add(target, &config);
    if (!discovery)
        return -ENOMEM;
    discovery->is_discovery = true;
    target->genctr = 1;
    return 0;
}

void nvt_target_free(struct nvt_target *target)
{
    struct list_node *node;
    while ((node = list_first(&target->subsystems)))
        nvt_subsystem_remove(LIST_MEMBER(node, struct nvt_subsystem, node));
    while ((node = list_first(&target->ports)))
        nvt_port_remove(LIST_MEMBER(node, struct nvt_port, node));
    for (uint32_t i = 0; i < target->thread_count; i++) {
        target->transport->forget(&target->threads[i].pool.region);
        mover_pool_free(&target->threads[i].pool);
        nvt_parts_close(&target->threads[i].compares);
    }
    free(target->peers);
    pthread_mutex_destroy(&target->error_lock);
}

void nvt_thread_end_unwanted(struct nvt_thread *thread)
{
    nvt_lines_end_unwanted(&thread->compares.lines);
    if (thread->uring)
        nvt_uring_end_unwanted(thread->uring);
}

void nvt_target_each_ctrl(struct nvt_target *target,
                          void (*visit)(struct nvt_ctrl *ctrl, void *arg), void *arg)
{
    for (struct list_node *s = list_first(&target->subsystems); s;
         s = list_after(&target->subsystems, s)) {
        struct nvt_subsystem *subsystem = LIST_MEMBER(s, struct nvt_subsystem, node);
        struct list_node *next;
        for (struct list_node *c = list_first(&subsystem->ctrls); c; c = next) {
            next = list_after(&subsystem->ctrls, c);
            visit(LIST_MEMBER(c, struct nvt_ctrl, node), arg);
        }
    }
}

static uint64_t heard_ns(const struct nvt_ctrl *ctrl)
{
    uint64_t heard_ns = ctrl->heard_ns;
    for (int i = 0; i < NVT_QUEUES_MAX; i++)
        if (ctrl->queues[i] && ctrl->queues[i]->heard_ns > heard_ns)
            heard_ns = ctrl->queues[i]->heard_ns;
    return heard_ns;
}

/* A host that has said nothing for its keep-alive time and a half is taken for dead. */
static void check_alive(struct nvt_ctrl *ctrl, void *arg)
{
    const uint64_t now_ns = *(const uint64_t *)arg;
    nvt_ctrl_cut_late(ctrl, now_ns);
    if (!ctrl->keep_alive_ms || ctrl->is_ending)
        return;
    const uint64_t limit_ns = ctrl->keep_alive_ms * NS_PER_MS * 3 / 2;
    const uint64_t last_ns = heard_ns(ctrl);
    if (now_ns > last_ns && now_ns - last_ns > limit_ns) {
        ctrl->csts |= NVF_CSTS_FATAL;
        nvt_ctrl_cut(ctrl);
    }
}

void nvt_target_refresh(struct nvt_target *target, bool asks_far)
{
    for (struct list_node *node = list_first(&target->subsystems); node;
         node = list_after(&target->subsystems, node)) {
        struct nvt_subsystem *subsystem = LIST_MEMBER(node, struct nvt_subsystem, node);
        for (uint32_t nsid = 1; nsid <= NVT_NSID_MAX && subsystem->namespace_count; nsid++) {
            struct nvt_namespace *ns = subsystem->namespaces[nsid];
            if (ns && (asks_far || !ns->backend->ops->is_size_far))
                nvt_namespace_refresh(ns);
        }
    }
}

uint64_t nvt_target_tick(struct nvt_target *target, uint64_t now_ns)
{
    nvt_target_each_ctrl(target, check_alive, &now_ns);
    nvt_namespace_sweep(target);
    nvt_resets_look(target);
    if (now_ns >= target->refresh_ns) {
        target->refresh_ns = now_ns + REFRESH_MS * NS_PER_MS;
        nvt_target_refresh(target, false);
    }
    return now_ns + TICK_MS * NS_PER_MS;
}

struct notice {
    enum nvt_event event;
    bool (*concerns)(const struct nvt_ctrl *ctrl, const void *what);
    const void *what;
};

static void notify_host(struct nvt_ctrl *ctrl, void *arg)
{
    const struct notice *notice = arg;
    if (notice->concerns(ctrl, notice->what))
        nvt_ctrl_notify(ctrl, notice->event);
}

void nvt_target_notify(struct nvt_target *target, enum nvt_event event,
                       bool (*concerns)(const struct nvt_ctrl *ctrl, const void *what),
                       const void *what)
{
    struct notice notice = {event, concerns, what};
    nvt_target_each_ctrl(target, notify_host, &notice);
}

static bool is_of_discovery(const struct nvt_ctrl *ctrl, const void *what)
{
    (void)what;
    return ctrl->subsystem->is_discovery;
}

void nvt_discovery_changed(struct nvt_target *target)
{
    target->genctr++;
    nvt_target_notify(target, NVT_EVENT_DISCOVERY, is_of_discovery, NULL);
}
