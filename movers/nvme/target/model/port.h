/* SPDX-License-Identifier: BSD-2-Clause */
/* Ports: which subsystems are served where, and in which ANA state. */
#ifndef SW_MOVERS_NVME_MODEL_PORT_H
#define SW_MOVERS_NVME_MODEL_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/list.h"
#include "nvme/target/config/config.h"

struct nvt_subsystem;
struct nvt_target;

/* Where hosts connect. It is there until the last connection that came by it has gone. */
struct nvt_port {
    struct list_node node;
    struct nvt_target *target;
    uint16_t id;
    uint8_t adrfam, treq; /* NVMF_ADDR_FAMILY_IP4 or IP6; NVMF_TREQ_* */
    char traddr[NVT_TRADDR_MAX], trsvcid[NVT_TRSVCID_MAX];
    uint32_t in_capsule_bytes;
    uint8_t ana_states[NVT_ANA_GROUPS_MAX + 1]; /* of group [1..]: enum nvme_ana_state */
    size_t referral_count, served_count;
    struct nvt_referral *referrals;
    struct nvt_subsystem **served; /* but the discovery subsystem, which all serve */
    uint32_t users;
    bool is_removed;
};

/* NULL: no memory. */
struct nvt_port *nvt_port_add(struct nvt_target *target, const struct nvt_config_port *config);
/* What it serves, its referrals and ANA states. Returns 0 or -ENOMEM. */
int nvt_port_update(struct nvt_port *port, const struct nvt_config_port *config);
/* No longer shown; it goes when nobody uses it. */
void nvt_port_remove(struct nvt_port *port);
void nvt_port_hold(struct nvt_port *port);
void nvt_port_release(struct nvt_port *port);
bool nvt_port_serves(const struct nvt_port *port, const struct nvt_subsystem *subsystem);
void nvt_port_forget(struct nvt_port *port, const struct nvt_subsystem *subsystem);

#endif
