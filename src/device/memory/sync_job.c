/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/memory/sync_job.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "device/memory/persist.h"

#define RUNNING_MAX 64

struct sw_sync_job {
    atomic_int refs; /* who started it, and its thread */
    atomic_bool ended;
    int rc;
    uint64_t va, len_bytes;
    void (*tell)(void);
};

static atomic_int running;

void sw_sync_job_drop(struct sw_sync_job *job)
{
    if (atomic_fetch_sub(&job->refs, 1) == 1)
        free(job);
}

static void *sync_run_jobs(void *arg)
{
    struct sw_sync_job *job = arg;
    void (*tell)(void) = job->tell;
    job->rc = sw_persist_sync(job->va, job->len_bytes);
    atomic_store_explicit(&job->ended, true, memory_order_release);
    sw_sync_job_drop(job);
    atomic_fetch_sub(&running, 1);
    tell();
    return NULL;
}

/* Detached, and deaf to the program's signals. */
static bool sync_job_start_thread(struct sw_sync_job *job)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = !pthread_create(&thread, NULL, sync_run_jobs, job);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_detach(thread);
    return started;
}

struct sw_sync_job *sw_sync_job_start(uint64_t va, uint64_t len_bytes, void (*tell)(void))
{
    struct sw_sync_job *job =
        atomic_fetch_add(&running, 1) < RUNNING_MAX ? malloc(sizeof(*job)) : NULL;
    if (!job) {
        atomic_fetch_sub(&running, 1);
        return NULL;
    }
    *job = (struct sw_sync_job){.refs = 2, .va = va, .len_bytes = len_bytes, .tell = tell};
    if (!sync_job_start_thread(job))
        sync_run_jobs(job); /* late is better than never */
    return job;
}

bool sw_sync_job_ended(const struct sw_sync_job *job, int *rc)
{
    if (!atomic_load_explicit(&job->ended, memory_order_acquire))
        return false;
    *rc = job->rc;
    return true;
}

void sw_sync_job_fork_child(void)
{
    atomic_store(&running, 0);
}
