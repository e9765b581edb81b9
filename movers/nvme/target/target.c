/* SPDX-License-Identifier: BSD-2-Clause */
/* Subsystems, namespaces, ports: what there is, and how it changes while hosts use it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/target/model.h"

#define NS_PER_MS 1000000ull
#define TICK_MS 100ull

int nvt_target_init(struct nvt_target *target, const struct nvt_transport *transport,
                    size_t pool_bytes, uint32_t in_capsule_bytes)
{
    *target = (struct nvt_target){.transport = transport, .in_capsule_bytes = in_capsule_bytes};
    list_init(&target->subsystems);
    list_init(&target->ports);
    list_init(&target->starved);
    const int rc = nvt_pool_init(&target->pool, pool_bytes);
    if (rc)
        return rc;
    struct nvt_subsystem *discovery = nvt_subsystem_add(target, NVF_DISCOVERY_NQN);
    if (!discovery)
        return -ENOMEM;
    discovery->is_discovery = discovery->allow_any_host = true;
    target->genctr = 1;
    return 0;
}

void nvt_target_free(struct nvt_target *target)
{
    struct list_node *node;
    while ((node = list_first(&target->subsystems)))
        nvt_subsystem_remove(LIST_MEMBER(node, struct nvt_subsystem, node));
    while ((node = list_first(&target->ports))) {
        list_remove(node);
        free(LIST_MEMBER(node, struct nvt_port, node));
    }
    target->transport->forget(&target->pool.region);
    nvt_pool_free(&target->pool);
}

static void each_ctrl(struct nvt_target *target, void (*visit)(struct nvt_ctrl *ctrl, void *arg),
                      void *arg)
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

/* A host that has said nothing for its keep-alive time and a half is taken for dead. */
static void check_alive(struct nvt_ctrl *ctrl, void *arg)
{
    const uint64_t now_ns = *(const uint64_t *)arg;
    nvt_ctrl_cut_late(ctrl, now_ns);
    if (!ctrl->keep_alive_ms || ctrl->is_ending)
        return;
    const uint64_t limit_ns = ctrl->keep_alive_ms * NS_PER_MS * 3 / 2;
    if (now_ns > ctrl->heard_ns && now_ns - ctrl->heard_ns > limit_ns) {
        ctrl->csts |= NVF_CSTS_FATAL;
        nvt_ctrl_cut(ctrl);
    }
}

uint64_t nvt_target_tick(struct nvt_target *target, uint64_t now_ns)
{
    each_ctrl(target, check_alive, &now_ns);
    return now_ns + TICK_MS * NS_PER_MS;
}

static void tell_discovery(struct nvt_ctrl *ctrl, void *arg)
{
    (void)arg;
    if (ctrl->subsystem->is_discovery)
        nvt_ctrl_notify(ctrl, NVT_EVENT_DISCOVERY);
}

void nvt_discovery_changed(struct nvt_target *target)
{
    target->genctr++;
    each_ctrl(target, tell_discovery, NULL);
}

/* ---- subsystems ---- */

/* Sixteen digits that stay the same for the same name. */
static void make_serial(const char *nqn, char serial[21])
{
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */
    for (const char *at = nqn; *at; at++)
        hash = (hash ^ (uint8_t)*at) * 0x100000001b3ull;
    snprintf(serial, 21, "%016llx", (unsigned long long)hash);
}

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

struct nvt_subsystem *nvt_subsystem_add(struct nvt_target *target, const char *nqn)
{
    if (strlen(nqn) > NVF_NQN_MAX || nvt_subsystem_find(target, nqn))
        return NULL;
    struct nvt_subsystem *subsystem = calloc(1, sizeof(*subsystem));
    if (!subsystem)
        return NULL;
    subsystem->target = target;
    snprintf(subsystem->nqn, sizeof(subsystem->nqn), "%s", nqn);
    snprintf(subsystem->model, sizeof(subsystem->model), "Sidewire");
    snprintf(subsystem->firmware, sizeof(subsystem->firmware), "1");
    make_serial(nqn, subsystem->serial);
    list_init(&subsystem->hosts);
    list_init(&subsystem->ctrls);
    list_append(&target->subsystems, &subsystem->node);
    nvt_discovery_changed(target);
    return subsystem;
}

/* Its controllers must have ended. */
void nvt_subsystem_remove(struct nvt_subsystem *subsystem)
{
    struct nvt_target *target = subsystem->target;
    struct list_node *node;
    for (uint32_t nsid = 1; nsid <= NVT_NSID_MAX; nsid++)
        if (subsystem->namespaces[nsid])
            nvt_namespace_remove(subsystem->namespaces[nsid]);
    while ((node = list_first(&subsystem->hosts))) {
        list_remove(node);
        free(LIST_MEMBER(node, struct nvt_host, node));
    }
    list_remove(&subsystem->node);
    free(subsystem);
    nvt_discovery_changed(target);
}

int nvt_subsystem_allow(struct nvt_subsystem *subsystem, const char *host_nqn)
{
    if (strlen(host_nqn) > NVF_NQN_MAX)
        return -ENAMETOOLONG;
    struct nvt_host *host = calloc(1, sizeof(*host));
    if (!host)
        return -ENOMEM;
    snprintf(host->nqn, sizeof(host->nqn), "%s", host_nqn);
    list_append(&subsystem->hosts, &host->node);
    nvt_discovery_changed(subsystem->target);
    return 0;
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

static void make_identity(struct nvt_namespace *ns)
{
    char text[64], serial[21];
    snprintf(text, sizeof(text), "%s/%u", ns->subsystem->serial, ns->nsid);
    make_serial(text, serial);
    memcpy(ns->uuid, serial, 16);
    ns->uuid[6] = (ns->uuid[6] & 0x0f) | 0x80; /* version 8: made by rules of our own */
    ns->uuid[8] = (ns->uuid[8] & 0x3f) | 0x80;
    memcpy(ns->nguid, ns->uuid, sizeof(ns->nguid));
}

int nvt_namespace_add(struct nvt_subsystem *subsystem, uint32_t nsid, struct nvt_backend *backend,
                      struct nvt_namespace **out)
{
    int rc = -EEXIST;
    for (uint32_t i = 1; !nsid && i <= NVT_NSID_MAX; i++)
        nsid = subsystem->namespaces[i] ? 0 : i;
    struct nvt_namespace *ns = NULL;
    if (nsid && nsid <= NVT_NSID_MAX && !subsystem->namespaces[nsid]) {
        ns = calloc(1, sizeof(*ns));
        rc = -ENOMEM;
    }
    if (!ns) {
        backend->ops->close(backend);
        return rc;
    }
    *ns = (struct nvt_namespace){
        .subsystem = subsystem,
        .nsid = nsid,
        .ana_group = 1,
        .backend = backend,
        .block_shift = (uint8_t)__builtin_ctz(backend->block_bytes),
        .is_read_only = backend->is_read_only,
        .region = {.base = backend->memory, .len_bytes = backend->size_bytes, .fixed_buffer = -1}};
    ns->blocks = backend->size_bytes >> ns->block_shift;
    list_init(&ns->preemptors);
    make_identity(ns);
    subsystem->namespaces[nsid] = ns;
    subsystem->namespace_count++;
    each_ctrl(subsystem->target, note_changed, ns);
    if (out)
        *out = ns;
    return 0;
}

static void free_namespace(struct nvt_namespace *ns)
{
    if (ns->backend->memory)
        ns->subsystem->target->transport->forget(&ns->region);
    ns->backend->ops->close(ns->backend);
    free(ns);
}

void nvt_namespace_remove(struct nvt_namespace *ns)
{
    struct nvt_subsystem *subsystem = ns->subsystem;
    subsystem->namespaces[ns->nsid] = NULL;
    subsystem->namespace_count--;
    ns->is_removed = true;
    each_ctrl(subsystem->target, note_changed, ns);
    if (!ns->users)
        free_namespace(ns);
}

void nvt_namespace_release(struct nvt_namespace *ns)
{
    if (--ns->users == 0 && ns->is_removed)
        free_namespace(ns);
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
    each_ctrl(ns->subsystem->target, note_changed, ns);
}

struct nvt_port *nvt_port_add(struct nvt_target *target, const char *traddr, const char *trsvcid,
                              uint8_t adrfam)
{
    struct nvt_port *port = calloc(1, sizeof(*port));
    if (!port)
        return NULL;
    struct list_node *last = list_is_empty(&target->ports) ? NULL : target->ports.head.previous;
    port->id = last ? (uint16_t)(LIST_MEMBER(last, struct nvt_port, node)->id + 1) : 1;
    port->adrfam = adrfam;
    snprintf(port->traddr, sizeof(port->traddr), "%s", traddr);
    snprintf(port->trsvcid, sizeof(port->trsvcid), "%s", trsvcid);
    list_append(&target->ports, &port->node);
    nvt_discovery_changed(target);
    return port;
}
