/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reservation commands of a namespace whose reservation a group of targets keeps: each is answered
 * when the group has committed what it makes of the reservation. Until then the old reservation
 * holds. Commands that come meanwhile wait for their turn.
 *
 * Where all targets of a group serve the namespace (nvt_commits_share()), the group commits the
 * command itself, and each target carries it out (nvt_commits_apply()), as it does those of others.
 * A target says when that holds there: when no command that it was to end is under way any more.
 * The group says that the change is done once it holds everywhere.
 */
#ifndef SW_MOVERS_NVME_MODEL_COMMIT_H
#define SW_MOVERS_NVME_MODEL_COMMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "nvme/target/model/request.h"
#include "nvme/target/model/reservation.h"

struct nvt_namespace;

struct nvt_commits {
    struct nvt_namespace *ns;
    /* Asks for the commit; nvt_commits_done() follows, not at once. Returns 0 or a negative
     * errno. */
    int (*propose)(struct nvt_commits *commits, const struct nvt_reservation *proposed,
                   uint64_t id);
    /* The same of one that is shared: the command. NULL: it is not. */
    int (*ask)(struct nvt_commits *commits, const struct nvt_reservation_change *change,
               uint64_t id);
    void (*holds)(struct nvt_commits *commits, uint64_t number); /* that change holds here */
    void *context;
    uint64_t number;            /* of the last change that was applied here */
    uint16_t status;            /* how the command under way has ended, once it was applied */
    struct nvt_request barrier; /* waits for commands that came before a change */
    uint64_t id;                /* of the commit that is under way; 0: none */
    bool is_orphaned;           /* its request has been answered: it took too long */
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
/* The same of a namespace that all targets of the group serve. `holds` may be called before
 * nvt_commits_apply() returns. */
int nvt_commits_share(struct nvt_namespace *ns,
                      int (*ask)(struct nvt_commits *commits,
                                 const struct nvt_reservation_change *change, uint64_t id),
                      void (*holds)(struct nvt_commits *commits, uint64_t number), void *context);
/* NULL: there is none. Nothing waits any more. */
void nvt_commits_close(struct nvt_commits *commits);
/* A reservation command whose data has come. */
void nvt_commits_add(struct nvt_commits *commits, struct nvt_request *request);
/* The group has committed a change of a namespace that is shared. */
void nvt_commits_apply(struct nvt_commits *commits, const struct nvt_applied *applied);
/* No command is under way any more that came before the last change that was to end some. */
void nvt_commits_are_calm(struct nvt_commits *commits);
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
