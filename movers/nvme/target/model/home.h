/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where all targets of a group are active, the commands of each host are done by one of them at a
 * time: its home. There its controllers find all namespaces optimized, elsewhere inaccessible. A
 * host has another home when no controller is left to which the old one was home, and the medium
 * there has done the last command: a controller that lived on might have one that it has not looked
 * at.
 */
#ifndef SW_MOVERS_NVME_MODEL_HOME_H
#define SW_MOVERS_NVME_MODEL_HOME_H

#include <stdbool.h>
#include <stdint.h>

#include <nvme/types.h>

#include "nvme/target/model/reservation.h"

struct nvt_ctrl;
struct nvt_subsystem;

/* How a member of such a group hears of hosts. */
struct nvt_homes_port {
    void (*came)(struct nvt_ctrl *ctrl, void *context); /* NULL: this is none */
    /* False: there is no place for one more host, or none for one more of that address. */
    bool (*admits)(const struct nvt_host_id *id, const char *nqn, const char *address,
                   void *context);
    void *context;
};

/* Two hosts may have the same one, also on purpose: it only saves comparing their names. */
uint64_t nvt_host_hash(const struct nvt_host_id *id, const char *nqn);
bool nvt_ctrl_is_of_host(const struct nvt_ctrl *ctrl, const struct nvt_host_id *id,
                         const char *nqn);
/* What a controller finds that is new. */
void nvt_home_admit(struct nvt_ctrl *ctrl, enum nvme_ana_state state, uint64_t epoch);
/* What all controllers of that host find, and are told of. */
void nvt_home_set(struct nvt_subsystem *subsystem, const struct nvt_host_id *id, const char *nqn,
                  enum nvme_ana_state state, uint64_t epoch);
/* Ends all controllers of that host at once. */
void nvt_home_drop(struct nvt_subsystem *subsystem, const struct nvt_host_id *id, const char *nqn);
/* One of that host's, which may be ending; NULL: it has none. */
struct nvt_ctrl *nvt_home_ctrl(const struct nvt_subsystem *subsystem, const struct nvt_host_id *id,
                               const char *nqn);
/* One of that host's is there to which this was home. Those that came later have done nothing: a
 * host that calls again and again must not keep its next owner waiting. */
bool nvt_home_has_served(const struct nvt_subsystem *subsystem, const struct nvt_host_id *id,
                         const char *nqn);
/* The medium has yet to do commands of controllers that have ended. */
bool nvt_home_has_commands(const struct nvt_subsystem *subsystem, const struct nvt_host_id *id,
                           const char *nqn);

#endif
