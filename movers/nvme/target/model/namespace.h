/* SPDX-License-Identifier: BSD-2-Clause */
/* Namespaces, which come, go and grow while hosts use them. */
#ifndef SW_MOVERS_NVME_MODEL_NAMESPACE_H
#define SW_MOVERS_NVME_MODEL_NAMESPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/pool/pool.h"
#include "nvme/target/backend/backend.h"
#include "nvme/target/model/reservation.h"
#include "nvme/target/model/target.h"

enum { NVT_NSID_MAX = 1024 }; /* of a subsystem; also how many there are at most */

struct nvt_commits;
struct nvt_config_namespace;
struct nvt_subsystem;

/* What requests of one thread have made of a namespace: a line of the cache for itself. */
struct nvt_tally {
    uint64_t users; /* requests under way; who is removed goes when no thread has one */
    uint64_t reads, writes, read_blocks, written_blocks;
    uint64_t unused[3];
};

struct nvt_namespace {
    struct nvt_target *target;
    struct nvt_subsystem *subsystem; /* not of one that is removed: that may have gone */
    uint32_t nsid, ana_group;
    struct nvt_backend *backend;
    struct nvt_backend *next;   /* is_resting: what comes then */
    char *opened;               /* what was opened as that: the text of the configuration */
    struct mover_region region; /* of a backend that lies in memory */
    uint8_t uuid[16], nguid[16];
    uint8_t block_shift;
    uint64_t blocks;
    bool is_read_only, is_removed;
    bool is_resting;                          /* its backend goes with the last request */
    void (*rested)(struct nvt_namespace *ns); /* it has gone; may be NULL */
    struct nvt_commits *commits; /* who commits reservations (commit.h); NULL: it does by itself */
    uint64_t preemptions;        /* so far: requests that came before one know it by that */
    struct nvt_reservation reservation;
    struct list_node node; /* of those that leave */
    bool is_leaving;       /* the backend does what it has to do before it is closed */
    bool may_close;        /* it has done that */
    struct nvt_io leave;
    struct list preemptors; /* Preempt and Abort commands that wait for earlier requests */
    _Alignas(64) struct nvt_tally tallies[NVT_THREADS_MAX]; /* by thread */
};

/* Owns the backend from then on, also if it fails (negative errno). */
int nvt_namespace_add(struct nvt_subsystem *subsystem, const struct nvt_config_namespace *config,
                      struct nvt_backend *backend, struct nvt_namespace **out);
void nvt_namespace_remove(struct nvt_namespace *ns);
/* Namespaces that are removed, or rest, close backends that have done what they had to do first. */
void nvt_namespace_sweep(struct nvt_target *target);
/* Removes those whose backends have something to do first. Sweep until none is left. */
void nvt_namespace_remove_slow(struct nvt_target *target);
/* What all threads have made of it. */
struct nvt_tally nvt_namespace_sum(const struct nvt_namespace *ns);
/* Its backend may have grown: tells hosts. */
void nvt_namespace_refresh(struct nvt_namespace *ns);
/* A user less, of that thread. */
void nvt_namespace_release(struct nvt_namespace *ns, const struct nvt_thread *thread);
/*
 * A namespace of a group of targets stands by while another target serves it: its backend is one
 * of nvt_standby_open(), and hosts find it inaccessible (nvt_subsystem_set_ana()).
 *
 * Serves it by `backend` from now on, whose blocks are of the same size. It is not resting.
 */
void nvt_namespace_wake(struct nvt_namespace *ns, struct nvt_backend *backend);
/* Stands by. Requests under way end first, those that wait for their turn at once. Then the old
 * backend is closed, ns->rested() is called, perhaps before this returns, and `standby` is the
 * backend. Hosts must find the namespace inaccessible already. */
void nvt_namespace_rest(struct nvt_namespace *ns, struct nvt_backend *standby);
void nvt_namespace_set_group(struct nvt_namespace *ns, uint32_t ana_group);

#endif
