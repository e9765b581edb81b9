/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reservation commands of a namespace whose reservation a group of targets keeps: each is answered
 * when the group has committed what it makes of the reservation. Until then the old reservation
 * holds. Commands that come meanwhile wait for their turn.
 */
#ifndef SW_MOVERS_NVME_MODEL_COMMIT_H
#define SW_MOVERS_NVME_MODEL_COMMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "nvme/target/model/reservation.h"

struct nvt_namespace;
struct nvt_request;

struct nvt_commits {
    struct nvt_namespace *ns;
    /* Asks for the commit; nvt_commits_done() follows, not at once. Returns 0 or a negative
     * errno. */
    int (*propose)(struct nvt_commits *commits, const struct nvt_reservation *proposed,
                   uint64_t id);
    void *context;
    uint64_t id;         /* of the commit that is under way; 0: none */
    bool is_orphaned;    /* its request has been answered: it took too long */
    struct list waiting; /* requests; the first is that of the commit, unless that is orphaned */
    struct nvt_reservation proposed;
    struct nvt_reservation_effect effect;
};

/* From now on the namespace's reservation is committed by `propose`. The namespace frees what is
 * made. Returns 0 or -ENOMEM. */
int nvt_commits_open(struct nvt_namespace *ns,
                     int (*propose)(struct nvt_commits *commits,
                                    const struct nvt_reservation *proposed, uint64_t id),
                     void *context);
/* NULL: there is none. Nothing waits any more. */
void nvt_commits_close(struct nvt_commits *commits);
/* A reservation command whose data has come. */
void nvt_commits_add(struct nvt_commits *commits, struct nvt_request *request);
/* `rc`: 0, or a negative errno where the group has refused it. An id that is not under way is
 * ignored. */
void nvt_commits_done(struct nvt_commits *commits, uint64_t id, int rc);
/* Commands that have waited for too long end with Namespace Not Ready. What is under way then may
 * still be committed, and counts. NULL: there are none. */
void nvt_commits_tick(struct nvt_commits *commits, uint64_t now_ns);
/* All commands that wait end with that status: another target has the namespace, or none. NULL:
 * there are none. */
void nvt_commits_drop(struct nvt_commits *commits, uint16_t status);

#endif
