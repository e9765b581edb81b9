/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/home.h"

#include <string.h>

#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/model/target.h"

static uint64_t hash_on(uint64_t hash, const void *bytes, size_t count)
{
    const uint64_t prime = 0x100000001b3; /* FNV-1a */
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ ((const uint8_t *)bytes)[i]) * prime;
    return hash;
}

uint64_t nvt_host_hash(const struct nvt_host_id *id, const char *nqn)
{
    const uint64_t basis = 0xcbf29ce484222325;
    return hash_on(hash_on(basis, id->bytes, sizeof(id->bytes)), nqn, strlen(nqn));
}

bool nvt_ctrl_is_of_host(const struct nvt_ctrl *ctrl, const struct nvt_host_id *id, const char *nqn)
{
    return !strcmp(ctrl->host_nqn, nqn) && !memcmp(&ctrl->host_id, id, sizeof(*id));
}

void nvt_home_admit(struct nvt_ctrl *ctrl, enum nvme_ana_state state, uint64_t epoch)
{
    ctrl->home_state = (uint8_t)state;
    ctrl->home_epoch = epoch;
    ctrl->was_home |= state == NVME_ANA_STATE_OPTIMIZED;
}

void nvt_home_set(struct nvt_subsystem *subsystem, const struct nvt_host_id *id, const char *nqn,
                  enum nvme_ana_state state, uint64_t epoch)
{
    subsystem->target->ana_changes++;
    for (struct list_node *node = list_first(&subsystem->ctrls); node;
         node = list_after(&subsystem->ctrls, node)) {
        struct nvt_ctrl *ctrl = LIST_MEMBER(node, struct nvt_ctrl, node);
        if (!nvt_ctrl_is_of_host(ctrl, id, nqn))
            continue;
        const bool differs = ctrl->home_state != state || ctrl->home_epoch != epoch;
        nvt_home_admit(ctrl, state, epoch);
        if (differs)
            nvt_ctrl_notify(ctrl, NVT_EVENT_ANA);
    }
}

void nvt_home_drop(struct nvt_subsystem *subsystem, const struct nvt_host_id *id, const char *nqn)
{
    for (struct list_node *node = list_first(&subsystem->ctrls); node;
         node = list_after(&subsystem->ctrls, node)) {
        struct nvt_ctrl *ctrl = LIST_MEMBER(node, struct nvt_ctrl, node);
        if (nvt_ctrl_is_of_host(ctrl, id, nqn))
            nvt_ctrl_drop(ctrl);
    }
}

struct nvt_ctrl *nvt_home_ctrl(const struct nvt_subsystem *subsystem, const struct nvt_host_id *id,
                               const char *nqn)
{
    for (struct list_node *node = list_first(&subsystem->ctrls); node;
         node = list_after(&subsystem->ctrls, node)) {
        struct nvt_ctrl *ctrl = LIST_MEMBER(node, struct nvt_ctrl, node);
        if (nvt_ctrl_is_of_host(ctrl, id, nqn))
            return ctrl;
    }
    return NULL;
}

bool nvt_home_has_served(const struct nvt_subsystem *subsystem, const struct nvt_host_id *id,
                         const char *nqn)
{
    for (struct list_node *node = list_first(&subsystem->ctrls); node;
         node = list_after(&subsystem->ctrls, node)) {
        const struct nvt_ctrl *ctrl = LIST_MEMBER(node, struct nvt_ctrl, node);
        if (ctrl->was_home && nvt_ctrl_is_of_host(ctrl, id, nqn))
            return true;
    }
    return false;
}

bool nvt_home_has_commands(const struct nvt_subsystem *subsystem, const struct nvt_host_id *id,
                           const char *nqn)
{
    for (struct list_node *node = list_first(&subsystem->target->lingering); node;
         node = list_after(&subsystem->target->lingering, node)) {
        const struct nvt_queue *queue = LIST_MEMBER(node, struct nvt_queue, linger);
        if (queue->under_way && !strcmp(queue->host_nqn, nqn) &&
            !memcmp(&queue->host_id, id, sizeof(*id)))
            return true;
    }
    return false;
}
