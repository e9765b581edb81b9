/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread for what takes long to compute, so that the target's thread goes on serving others. The
 * target's thread gives jobs and calls nvt_worker_reap() when it looks for other work; an eventfd
 * wakes it where it sleeps. Jobs are done one after the other. The thread begins with the first.
 *
 * Owners of jobs take turns: an owner that gives many waits behind others that give few, and no
 * owner has more than NVT_JOBS_MAX that wait.
 */
#ifndef SW_MOVERS_NVME_WORKER_H
#define SW_MOVERS_NVME_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

enum { NVT_JOBS_MAX = 128 }; /* that wait, of one owner */

struct nvt_job {
    struct list_node node;
    const char *owner; /* a name, compared by its letters, that outlives the job */
    bool is_trusted;   /* the name is proved. Unproved owners queue separately. */
    uint64_t turn;
    void (*work)(struct nvt_job *job); /* on the worker's thread; what it uses is the job's own */
    void (*done)(struct nvt_job *job); /* on the target's, when work() has returned */
};

struct nvt_worker {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct list waiting, done; /* waiting: in the order of turns */
    uint64_t turn;             /* of the job that was begun last */
    _Atomic bool has_done;     /* `done` is not empty */
    bool has_thread, ends;
    pthread_t thread;
    int event_fd;
};

/* Returns 0 or a negative errno. */
int nvt_worker_open(struct nvt_worker *worker);
/* Jobs that wait are not done any more, and nobody hears of the one that is. */
void nvt_worker_close(struct nvt_worker *worker);
/* False: too many of its owner wait, or there is no thread. */
bool nvt_worker_give(struct nvt_worker *worker, struct nvt_job *job);
/* True: it was not begun, and never will be. Else done() comes. */
bool nvt_worker_cancel(struct nvt_worker *worker, struct nvt_job *job);
/* There are jobs that are done. Any thread may ask. */
bool nvt_worker_has_done(const struct nvt_worker *worker);
/* Calls done() of those that are. True: there were some. */
bool nvt_worker_reap(struct nvt_worker *worker);

#endif
