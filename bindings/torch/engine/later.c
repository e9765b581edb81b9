// SPDX-License-Identifier: BSD-2-Clause
#include "later.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "process.h"

enum { THREADS_MAX = 64 };

struct later_task {
    struct later_task *next;
    void (*run)(void *context);
    void *context;
};

struct pge_later {
    pthread_mutex_t lock;
    pthread_cond_t has_task, has_ended;
    struct later_task *first, **last;
    uint32_t queued, idle, threads;
    uint32_t users; /* the engine, and threads: the last one frees it */
    bool is_ending;
};

static _Thread_local struct pge_later *own; /* whose thread this is */

struct pge_later *pge_later_open(void)
{
    struct pge_later *later = calloc(1, sizeof(*later));
    if (!later)
        return NULL;
    pthread_mutex_init(&later->lock, NULL);
    pthread_cond_init(&later->has_task, NULL);
    pthread_cond_init(&later->has_ended, NULL);
    later->last = &later->first;
    later->users = 1;
    return later;
}

/* With the lock, which it gives back. */
static void drop_user(struct pge_later *later)
{
    const bool is_last = !--later->users;
    pthread_cond_broadcast(&later->has_ended);
    pthread_mutex_unlock(&later->lock);
    if (!is_last)
        return;
    pthread_cond_destroy(&later->has_ended);
    pthread_cond_destroy(&later->has_task);
    pthread_mutex_destroy(&later->lock);
    free(later);
}

static void run_first_task(struct pge_later *later)
{
    struct later_task *task = later->first;
    later->first = task->next;
    if (!later->first)
        later->last = &later->first;
    later->queued--;
    pthread_mutex_unlock(&later->lock);
    task->run(task->context);
    free(task);
    pthread_mutex_lock(&later->lock);
}

static void *later_thread(void *arg)
{
    struct pge_later *later = own = arg;
    pthread_mutex_lock(&later->lock);
    while (later->first || !later->is_ending) {
        if (later->first) {
            run_first_task(later);
            continue;
        }
        later->idle++;
        pthread_cond_wait(&later->has_task, &later->lock);
        later->idle--;
    }
    later->threads--;
    drop_user(later);
    return NULL;
}

/* With the lock. */
static bool start_thread(struct pge_later *later)
{
    pthread_t thread;
    if (!pge_start_thread(&thread, later_thread, later))
        return false;
    pthread_detach(thread);
    later->threads++;
    later->users++;
    return true;
}

bool pge_later_call(struct pge_later *later, void (*run)(void *context), void *context)
{
    struct later_task *task = malloc(sizeof(*task));
    if (!task)
        return false;
    *task = (struct later_task){.run = run, .context = context};
    pthread_mutex_lock(&later->lock);
    /* A function that waits may have left others behind it in the queue. */
    const bool needs_thread = later->queued >= later->idle && later->threads < THREADS_MAX;
    if (later->is_ending || (needs_thread && !start_thread(later) && !later->threads)) {
        pthread_mutex_unlock(&later->lock);
        free(task);
        return false;
    }
    *later->last = task;
    later->last = &task->next;
    later->queued++;
    pthread_cond_signal(&later->has_task);
    pthread_mutex_unlock(&later->lock);
    return true;
}

void pge_later_close(struct pge_later *later)
{
    if (!later)
        return;
    const uint32_t own_threads = own == later;
    pthread_mutex_lock(&later->lock);
    later->is_ending = true;
    pthread_cond_broadcast(&later->has_task);
    while (later->threads > own_threads)
        pthread_cond_wait(&later->has_ended, &later->lock);
    drop_user(later);
}
