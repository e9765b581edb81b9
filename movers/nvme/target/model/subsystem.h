/* SPDX-License-Identifier: BSD-2-Clause */
/* Subsystems: their identity, whom they let in, how they change while hosts use them. */
#ifndef SW_MOVERS_NVME_MODEL_SUBSYSTEM_H
#define SW_MOVERS_NVME_MODEL_SUBSYSTEM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "nvme/target/config/config.h"
#include "nvme/target/model/auth.h"
#include "nvme/target/model/home.h"
#include "nvme/target/model/namespace.h"
#include "nvme/target/model/reset.h"
#include "nvme/wire/fabrics.h"

struct nvt_host {
    struct list_node node;
    char nqn[NVF_NQN_MAX + 1];
    bool has_policy; /* it has to prove itself */
    struct nvt_auth_policy policy;
};

struct nvt_subsystem {
    struct list_node node; /* of the target */
    struct nvt_target *target;
    char nqn[NVF_NQN_MAX + 1], serial[21], model[41], firmware[9];
    bool allow_any_host, is_discovery, is_removed;
    struct list hosts, ctrls;
    uint16_t next_cntlid, cntlid_min, cntlid_max;
    uint16_t queues_max; /* I/O queues of a controller */
    uint32_t namespace_count;
    struct nvt_namespace *namespaces[NVT_NSID_MAX + 1]; /* by nsid */
    /* By ANA group [1..]: what the group of targets says, at all ports; 0: as the port says. */
    uint8_t ana_states[NVT_ANA_GROUPS_MAX + 1];
    uint64_t ana_epochs[NVT_ANA_GROUPS_MAX + 1]; /* the owner's, which hosts see as change count */
    /* Targets of a group serve it, which the medium fences before another one takes over. */
    bool is_grouped;
    uint8_t slot;                  /* of this target in the group */
    struct nvt_resets_port resets; /* all zeroes outside a group */
    struct nvt_homes_port homes;   /* all zeroes but where all targets of a group are active */
    uint8_t last_ciu;
    uint32_t gone_at;
    struct nvt_instance gone[NVT_GONE_KEPT]; /* controllers that have ended, the last ones */
};

/* NULL: there is one of that name, or no memory. Its namespaces are added one by one. */
struct nvt_subsystem *nvt_subsystem_add(struct nvt_target *target,
                                        const struct nvt_config_subsystem *config);
struct nvt_subsystem *nvt_subsystem_find(struct nvt_target *target, const char *nqn);
/* Sets its identity and which hosts it takes; hosts that are no longer let in lose their
 * connections. Returns 0 or -ENOMEM. */
int nvt_subsystem_update(struct nvt_subsystem *subsystem,
                         const struct nvt_config_subsystem *config);
/* Takes no host any more. Ends its controllers, and goes with the last of them. */
void nvt_subsystem_remove(struct nvt_subsystem *subsystem);
void nvt_subsystem_release(struct nvt_subsystem *subsystem); /* a controller less */
/* NULL: it is not in the list. */
struct nvt_host *nvt_subsystem_host(const struct nvt_subsystem *subsystem, const char *host_nqn);
/* The state of an ANA group at all ports in an epoch of its owner, and tells hosts. `group` is 1 to
 * NVT_ANA_GROUPS_MAX. */
void nvt_subsystem_set_ana(struct nvt_subsystem *subsystem, uint32_t group,
                           enum nvme_ana_state state, uint64_t epoch);
bool nvt_subsystem_admits(const struct nvt_subsystem *subsystem, const char *host_nqn);

#endif
