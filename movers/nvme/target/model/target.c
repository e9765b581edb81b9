/* SPDX-License-Identifier: BSD-2-Clause */
/* Subsystems, namespaces, ports: what there is, and how it changes while hosts use it. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/time/clock.h"
#include "nvme/target/backend/claim.h"
#include "nvme/target/model/model.h"

enum { LINE_BYTES = 64 };
static_assert(sizeof(struct nvt_tally) == LINE_BYTES, "threads do not write to the same line");

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
    const int rc = nvt_pool_init(&thread->pool, pool_bytes);
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
        nvt_pool_free(&target->threads[i].pool);
    }
    pthread_mutex_destroy(&target->error_lock);
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

uint64_t nvt_target_tick(struct nvt_target *target, uint64_t now_ns)
{
    nvt_target_each_ctrl(target, check_alive, &now_ns);
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

/* ---- subsystems ---- */

struct nvt_subsystem *nvt_subsystem_find(struct nvt_target *target, const char *nqn)
{
    for (struct list_node *node = list_first(&target->subsystems); node;
         node = list_after(&target->subsystems, node)) {
        struct nvt_subsystem *subsystem = LIST_MEMBER(node, struct nvt_subsystem, node);
        if (!strcmp(subsystem->nqn, nqn))
            return subsystem;
    }
    return NULL;
}

static void forget_hosts(struct nvt_subsystem *subsystem)
{
    struct list_node *node;
    while ((node = list_first(&subsystem->hosts))) {
        struct nvt_host *host = LIST_MEMBER(node, struct nvt_host, node);
        list_remove(node);
        explicit_bzero(host, sizeof(*host)); /* it may have secrets */
        free(host);
    }
}

static bool take_hosts(struct nvt_subsystem *subsystem, const struct nvt_config_subsystem *config)
{
    forget_hosts(subsystem);
    subsystem->allow_any_host = config->allow_any_host;
    for (size_t i = 0; i < config->host_count; i++) {
        struct nvt_host *host = calloc(1, sizeof(*host));
        if (!host)
            return false;
        memcpy(host->nqn, config->hosts[i].text, sizeof(host->nqn));
        list_append(&subsystem->hosts, &host->node);
    }
    return true;
}

static void take_identity(struct nvt_subsystem *subsystem,
                          const struct nvt_config_subsystem *config)
{
    memcpy(subsystem->serial, config->serial, sizeof(subsystem->serial));
    memcpy(subsystem->model, config->model, sizeof(subsystem->model));
    memcpy(subsystem->firmware, *config->firmware ? config->firmware : "1",
           *config->firmware ? sizeof(subsystem->firmware) : sizeof("1"));
    subsystem->cntlid_min = config->cntlid_min ? config->cntlid_min : 1;
    subsystem->cntlid_max = config->cntlid_max ? config->cntlid_max : NVT_CNTLID_MAX;
    subsystem->queues_max =
        config->qid_max && config->qid_max < NVT_QUEUES_MAX ? config->qid_max : NVT_QUEUES_MAX - 1;
}

static void free_subsystem(struct nvt_subsystem *subsystem)
{
    forget_hosts(subsystem);
    free(subsystem);
}

struct nvt_subsystem *nvt_subsystem_add(struct nvt_target *target,
                                        const struct nvt_config_subsystem *config)
{
    struct nvt_subsystem *subsystem =
        nvt_subsystem_find(target, config->nqn.text) ? NULL : calloc(1, sizeof(*subsystem));
    if (!subsystem)
        return NULL;
    subsystem->target = target;
    memcpy(subsystem->nqn, config->nqn.text, sizeof(subsystem->nqn));
    list_init(&subsystem->hosts);
    list_init(&subsystem->ctrls);
    take_identity(subsystem, config);
    if (!take_hosts(subsystem, config)) {
        free_subsystem(subsystem);
        return NULL;
    }
    list_append(&target->subsystems, &subsystem->node);
    nvt_discovery_changed(target);
    return subsystem;
}

static void cut_unless_admitted(struct nvt_ctrl *ctrl, void *arg)
{
    if (ctrl->subsystem == arg && !nvt_subsystem_admits(ctrl->subsystem, ctrl->host_nqn))
        nvt_ctrl_cut(ctrl);
}

int nvt_subsystem_update(struct nvt_subsystem *subsystem, const struct nvt_config_subsystem *config)
{
    take_identity(subsystem, config);
    const bool is_whole = take_hosts(subsystem, config);
    nvt_target_each_ctrl(subsystem->target, cut_unless_admitted, subsystem);
    nvt_discovery_changed(subsystem->target);
    return is_whole ? 0 : -ENOMEM;
}

static void cut_of(struct nvt_ctrl *ctrl, void *arg)
{
    if (ctrl->subsystem == arg)
        nvt_ctrl_cut(ctrl);
}

void nvt_subsystem_remove(struct nvt_subsystem *subsystem)
{
    struct nvt_target *target = subsystem->target;
    for (uint32_t nsid = 1; nsid <= NVT_NSID_MAX; nsid++)
        if (subsystem->namespaces[nsid])
            nvt_namespace_remove(subsystem->namespaces[nsid]);
    for (struct list_node *node = list_first(&target->ports); node;
         node = list_after(&target->ports, node))
        nvt_port_forget(LIST_MEMBER(node, struct nvt_port, node), subsystem);
    nvt_target_each_ctrl(target, cut_of, subsystem);
    list_remove(&subsystem->node);
    subsystem->is_removed = true;
    nvt_subsystem_release(subsystem);
    nvt_discovery_changed(target);
}

void nvt_subsystem_release(struct nvt_subsystem *subsystem)
{
    if (subsystem->is_removed && list_is_empty(&subsystem->ctrls))
        free_subsystem(subsystem);
}

struct nvt_host *nvt_subsystem_host(const struct nvt_subsystem *subsystem, const char *host_nqn)
{
    for (struct list_node *node = list_first(&subsystem->hosts); node;
         node = list_after(&subsystem->hosts, node)) {
        struct nvt_host *host = LIST_MEMBER(node, struct nvt_host, node);
        if (!strcmp(host->nqn, host_nqn))
            return host;
    }
    return NULL;
}

bool nvt_subsystem_admits(const struct nvt_subsystem *subsystem, const char *host_nqn)
{
    return subsystem->allow_any_host || nvt_subsystem_host(subsystem, host_nqn);
}

/* ---- namespaces ---- */

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
        .region = {.base = backend->memory, .len_bytes = backend->size_bytes, .fixed_buffer = -1}};
    ns->blocks = backend->size_bytes >> ns->block_shift;
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

static void free_namespace(struct nvt_namespace *ns)
{
    if (ns->backend->memory)
        ns->target->transport->forget(&ns->region);
    ns->backend->ops->close(ns->backend);
    ns->target->serial--;
    free(ns->opened);
    free(ns);
}

void nvt_namespace_remove(struct nvt_namespace *ns)
{
    struct nvt_subsystem *subsystem = ns->subsystem;
    subsystem->namespaces[ns->nsid] = NULL;
    subsystem->namespace_count--;
    ns->is_removed = true;
    nvt_claim_leave(ns->backend->claim);
    nvt_target_each_ctrl(subsystem->target, note_changed, ns);
    ns->target->serial++; /* who still has it sees when the last request is over */
    if (!nvt_namespace_sum(ns).users)
        free_namespace(ns);
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

void nvt_namespace_release(struct nvt_namespace *ns, const struct nvt_thread *thread)
{
    ns->tallies[thread->number].users--;
    if (ns->is_removed && !nvt_namespace_sum(ns).users)
        free_namespace(ns);
}

/* Its backend may have grown: tells hosts. */
static void refresh_namespace(struct nvt_namespace *ns)
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

void nvt_target_refresh(struct nvt_target *target, bool asks_far)
{
    for (struct list_node *node = list_first(&target->subsystems); node;
         node = list_after(&target->subsystems, node)) {
        struct nvt_subsystem *subsystem = LIST_MEMBER(node, struct nvt_subsystem, node);
        for (uint32_t nsid = 1; nsid <= NVT_NSID_MAX && subsystem->namespace_count; nsid++) {
            struct nvt_namespace *ns = subsystem->namespaces[nsid];
            if (ns && (asks_far || !ns->backend->ops->is_size_far))
                refresh_namespace(ns);
        }
    }
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
