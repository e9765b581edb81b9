/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A controller, as the machine has it. All fields belong to the thread that holds the controller's
 * lock, but for the atomic ones.
 *
 * A controller that is lost gets a new epoch. Each queue compares it with its own at each poll, and
 * takes itself down when they differ.
 */
#ifndef SW_MOVERS_NVME_HOST_MACHINE_CONTROLLER_H
#define SW_MOVERS_NVME_HOST_MACHINE_CONTROLLER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/rdma/fork_guard.h"
#include "nvme/host/machine/keepalive.h"
#include "nvme/host/machine/queue.h"
#include "nvme/host/machine/setup.h"
#include "nvme/wire/fabrics.h"
#include "sidewire/nvme.h"

struct nvh_group;

struct sw_nvme_controller {
    struct nvh_group *group; /* itself, if it is one over several paths; else NULL */
    _Atomic uint32_t epoch, state, activity;
    _Atomic uint64_t lost_ns;
    _Atomic bool was_lost;         /* and no I/O queue is up again */
    struct mover_fork_guard guard; /* nothing of it goes on in a child */

    struct sw_nvme_queue *admin;
    struct sw_nvme_options options;
    char subsysnqn[NVF_NQN_MAX + 1], hostnqn[NVF_NQN_MAX + 1];
    uint8_t hostid[16];
    char *where;      /* "ADDR:PORT", for messages */
    bool has_secret;  /* the host's, so that it can authenticate */
    bool wants_proof; /* the controller has to know its secret */

    struct nvh_setup setup;
    struct nvh_keep_alive keep_alive;
    struct nvh_event_ring events;
    uint64_t next_try_ns;
    bool was_live;
    bool is_path; /* one of several: it is tried again also if it never was there, and requests of a
                   * lost connection go back to who has other paths */
    bool gives_up;            /* the refusal says that it is useless to try again */
    struct sw_nvme_info info; /* but for cntlid and reconnects it stays as it first was */
    struct sw_nvme_error error;
};

/* Its connections, its lock and its registered memory are those of the parent of this process. */
static inline bool nvh_is_forked(const struct sw_nvme_controller *controller)
{
    return mover_is_forked(&controller->guard);
}

#endif
