/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/subsystem.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/namespace.h"
#include "nvme/target/model/port.h"
#include "nvme/target/model/target.h"

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

static bool is_at_subsystem(const struct nvt_ctrl *ctrl, const void *what)
{
    return ctrl->subsystem == what;
}

void nvt_subsystem_set_ana(struct nvt_subsystem *subsystem, uint32_t group,
                           enum nvme_ana_state state, uint64_t epoch)
{
    assert(group && group <= NVT_ANA_GROUPS_MAX);
    if (subsystem->ana_states[group] == state && subsystem->ana_epochs[group] == epoch)
        return;
    subsystem->ana_states[group] = (uint8_t)state;
    subsystem->ana_epochs[group] = epoch;
    subsystem->target->ana_changes++;
    nvt_target_notify(subsystem->target, NVT_EVENT_ANA, is_at_subsystem, subsystem);
}
