/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/memory/sync_job.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/thread.h"
#include "device/memory/failed_file.h"
#include "device/memory/persist.h"

#define RUNNING_MAX 128

struct sw_sync_job {
    atomic_int refs; /* who started it, and its thread */
    atomic_bool ended;
    int rc;
    uint64_t owner, va, len_bytes;
    bool is_syncing; /* its msync has begun, and the result is not known yet */
    uint64_t number; /* in the order in which they began */
    struct sw_persist_file file;
    void (*tell)(void);
    struct sw_sync_job *next; /* of those that run */
};

static struct sw_sync_job *running; /* dropped ones too: their threads are as many */
static uint64_t jobs_begun;
static pthread_mutex_t running_lock = PTHREAD_MUTEX_INITIALIZER; /* and failed_file.h */
static pthread_cond_t result_known = PTHREAD_COND_INITIALIZER;

/* A disk that hangs keeps all that its regions may have, and for ever. So one owner has half of
 * what the others leave: there is always something for the next one. */
static bool may_run(uint64_t owner)
{
    uint32_t own = 0, others = 0;
    for (const struct sw_sync_job *job = running; job; job = job->next)
        *(job->owner == owner ? &own : &others) += 1;
    const uint32_t left = RUNNING_MAX - others;
    return own < left && (own == 0 || own < left / 2);
}

static bool sync_job_enter(struct sw_sync_job *job)
{
    pthread_mutex_lock(&running_lock);
    const bool may = may_run(job->owner);
    if (may) {
        job->next = running;
        running = job;
    }
    pthread_mutex_unlock(&running_lock);
    return may;
}

/* Reads its file first, as another one may be mapped there afterwards, and without the lock, which
 * the engine takes: reading takes long in a large process. Others need not wait for the job until
 * then: an msync that has not begun is told of no error of theirs. */
static void sync_job_begin(struct sw_sync_job *job)
{
    job->file = sw_persist_file_of(job->va, job->len_bytes);
    pthread_mutex_lock(&running_lock);
    job->number = ++jobs_begun;
    job->is_syncing = true;
    pthread_mutex_unlock(&running_lock);
}

/* Another job that began before `until`, and may have been told of an error of the same file. */
static bool is_result_open(const struct sw_sync_job *job, uint64_t until)
{
    for (struct sw_sync_job *other = running; other; other = other->next)
        if (other != job && other->is_syncing && other->number <= until &&
            sw_persist_is_same_file(&job->file, &other->file))
            return true;
    return false;
}

/*
 * The kernel tells of pages that could not be written to one msync alone, of all that share a
 * mapping's open file; the pages are clean afterwards. So the first error of a file is that of
 * every later job of the file. A job that went well waits for those that were under way beside it:
 * one of them may have been told instead.
 */
static void settle_result(struct sw_sync_job *job, int rc)
{
    pthread_mutex_lock(&running_lock);
    if (rc)
        sw_failed_file_note(&job->file, rc);
    job->is_syncing = false;
    pthread_cond_broadcast(&result_known);
    const uint64_t until = jobs_begun;
    while (!rc && is_result_open(job, until))
        pthread_cond_wait(&result_known, &running_lock);
    const int first = sw_failed_file_error(&job->file);
    job->rc = first ? first : rc;
    pthread_mutex_unlock(&running_lock);
}

static void sync_job_leave(struct sw_sync_job *job)
{
    pthread_mutex_lock(&running_lock);
    struct sw_sync_job **at = &running;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    pthread_mutex_unlock(&running_lock);
}

void sw_sync_job_drop(struct sw_sync_job *job)
{
    if (atomic_fetch_sub(&job->refs, 1) == 1)
        free(job);
}

static void *sync_run_jobs(void *arg)
{
    struct sw_sync_job *job = arg;
    void (*tell)(void) = job->tell;
    sync_job_begin(job);
    const int rc = sw_persist_sync(job->va, job->len_bytes);
    if (rc == -ENOMEM) /* unmapped since: no error of the disk's */
        job->file.is_whole =
            job->file.is_whole && sw_persist_file_of(job->va, job->len_bytes).is_whole;
    settle_result(job, rc);
    sync_job_leave(job);
    atomic_store_explicit(&job->ended, true, memory_order_release);
    sw_sync_job_drop(job);
    tell();
    return NULL;
}

static bool sync_job_start_thread(struct sw_sync_job *job)
{
    pthread_t thread;
    const bool started = !sw_thread_start(&thread, NULL, sync_run_jobs, job);
    if (started)
        pthread_detach(thread);
    return started;
}

struct sw_sync_job *sw_sync_job_start(uint64_t owner, uint64_t va, uint64_t len_bytes,
                                      void (*tell)(void))
{
    struct sw_sync_job *job = malloc(sizeof(*job));
    if (!job)
        return NULL;
    *job = (struct sw_sync_job){
        .refs = 2, .owner = owner, .va = va, .len_bytes = len_bytes, .tell = tell};
    bool runs = sync_job_enter(job);
    if (runs && !sync_job_start_thread(job)) { /* the caller must not wait for a disk itself */
        sync_job_leave(job);
        runs = false;
    }
    if (runs)
        return job;
    free(job);
    return NULL;
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
    pthread_mutex_init(&running_lock, NULL); /* a thread that is not here may have held it */
    pthread_cond_init(&result_known, NULL);
    running = NULL;
}
