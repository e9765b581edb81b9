/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/port.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/model/target.h"

struct nvt_port *nvt_port_add(struct nvt_target *target, const struct nvt_config_port *config)
{
    struct nvt_port *port = calloc(1, sizeof(*port));
    if (!port)
        return NULL;
    port->target = target;
    port->id = config->portid;
    port->adrfam = config->listen.adrfam;
    port->treq = config->treq;
    port->in_capsule_bytes = config->in_capsule_bytes;
    snprintf(port->traddr, sizeof(port->traddr), "%s", config->listen.traddr);
    snprintf(port->trsvcid, sizeof(port->trsvcid), "%u", config->listen.port);
    list_append(&target->ports, &port->node);
    if (nvt_port_update(port, config)) {
        nvt_port_remove(port);
        return NULL;
    }
    return port;
}

static bool is_by_port(const struct nvt_ctrl *ctrl, const void *what)
{
    return ctrl->port == what;
}

static void take_states(struct nvt_port *port, const struct nvt_config_port *config)
{
    bool differs = false;
    for (uint32_t group = 1; group <= NVT_ANA_GROUPS_MAX; group++) {
        const uint8_t state = (uint8_t)nvt_config_ana_state(config, group);
        differs = differs || port->ana_states[group] != state;
        port->ana_states[group] = state;
    }
    if (!differs)
        return;
    port->target->ana_changes++;
    nvt_target_notify(port->target, NVT_EVENT_ANA, is_by_port, port);
}

/* A host that came by this port, to what is no longer served here, loses its connection. */
static void cut_unserved(struct nvt_port *port)
{
    for (struct list_node *s = list_first(&port->target->subsystems); s;
         s = list_after(&port->target->subsystems, s)) {
        struct nvt_subsystem *subsystem = LIST_MEMBER(s, struct nvt_subsystem, node);
        for (struct list_node *c = list_first(&subsystem->ctrls); c;
             c = list_after(&subsystem->ctrls, c)) {
            struct nvt_ctrl *ctrl = LIST_MEMBER(c, struct nvt_ctrl, node);
            if (ctrl->port == port && !nvt_port_serves(port, subsystem))
                nvt_ctrl_cut(ctrl);
        }
    }
}

int nvt_port_update(struct nvt_port *port, const struct nvt_config_port *config)
{
    struct nvt_referral *referrals =
        calloc(config->referral_count + 1, sizeof(*referrals)); /* + 1: never of no size */
    struct nvt_subsystem **served = calloc(config->subsystem_count + 1, sizeof(*served));
    if (!referrals || !served) {
        free(referrals);
        free(served);
        return -ENOMEM;
    }
    for (size_t i = 0; i < config->referral_count; i++)
        referrals[i] = config->referrals[i];
    size_t count = 0;
    for (size_t i = 0; i < config->subsystem_count; i++) {
        struct nvt_subsystem *subsystem =
            nvt_subsystem_find(port->target, config->subsystems[i].text);
        if (subsystem)
            served[count++] = subsystem;
    }
    free(port->referrals);
    free(port->served);
    port->referrals = referrals;
    port->referral_count = config->referral_count;
    port->served = served;
    port->served_count = count;
    take_states(port, config);
    cut_unserved(port);
    nvt_discovery_changed(port->target);
    return 0;
}

bool nvt_port_serves(const struct nvt_port *port, const struct nvt_subsystem *subsystem)
{
    for (size_t i = 0; i < port->served_count; i++)
        if (port->served[i] == subsystem)
            return true;
    return subsystem->is_discovery;
}

void nvt_port_forget(struct nvt_port *port, const struct nvt_subsystem *subsystem)
{
    size_t kept = 0;
    for (size_t i = 0; i < port->served_count; i++)
        if (port->served[i] != subsystem)
            port->served[kept++] = port->served[i];
    port->served_count = kept;
}

static void port_free_unused(struct nvt_port *port)
{
    if (!port->is_removed || port->users)
        return;
    free(port->referrals);
    free(port->served);
    free(port);
}

void nvt_port_remove(struct nvt_port *port)
{
    struct nvt_target *target = port->target;
    list_remove(&port->node);
    port->is_removed = true;
    port->served_count = 0;
    port_free_unused(port);
    nvt_discovery_changed(target);
}

void nvt_port_hold(struct nvt_port *port)
{
    port->users++;
}

void nvt_port_release(struct nvt_port *port)
{
    port->users--;
    port_free_unused(port);
}
