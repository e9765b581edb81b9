/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/worker.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/serve/thread.h"

/* Added to that of the target's thread: threads that serve and those that wait for data come first
 * where there are few processors. */
enum { NICE = 10 };

int nvt_worker_open(struct nvt_worker *worker)
{
    *worker = (struct nvt_worker){.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    if (worker->event_fd < 0)
        return -errno;
    list_init(&worker->waiting);
    list_init(&worker->done);
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->wake, NULL);
    return 0;
}

static struct nvt_job *job_at(struct list_node *node)
{
    return LIST_MEMBER(node, struct nvt_job, node);
}

/* With the lock held; NULL: it is to end. */
static struct nvt_job *await_job(struct nvt_worker *worker)
{
    while (!worker->ends && list_is_empty(&worker->waiting))
        pthread_cond_wait(&worker->wake, &worker->lock);
    if (worker->ends)
        return NULL;
    struct nvt_job *job = job_at(list_first(&worker->waiting));
    list_remove(&job->node);
    worker->turn = job->turn;
    return job;
}

static void *worker_run_jobs(void *arg)
{
    struct nvt_worker *worker = arg;
    struct nvt_job *job;
    (void)nice(NICE); /* of this thread alone, on Linux */
    pthread_mutex_lock(&worker->lock);
    while ((job = await_job(worker))) {
        pthread_mutex_unlock(&worker->lock);
        job->work(job);
        pthread_mutex_lock(&worker->lock);
        list_append(&worker->done, &job->node);
        atomic_store_explicit(&worker->has_done, true, memory_order_release);
        eventfd_write(worker->event_fd, 1);
    }
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

static bool worker_start_thread(struct nvt_worker *worker)
{
    worker->has_thread = !mover_thread_start(&worker->thread, worker_run_jobs, worker);
    return worker->has_thread;
}

static bool is_same_owner(const struct nvt_job *a, const struct nvt_job *b)
{
    return a->is_trusted == b->is_trusted && strcmp(a->owner, b->owner) == 0;
}

/* With the lock held. An owner has one job in each turn, and those of a turn go in the order in
 * which they came. The turn that has begun is closed: who is served and at once asks again would
 * else stay ahead of others. False: there are too many of its owner. */
static bool put_in_turn(struct nvt_worker *worker, struct nvt_job *job)
{
    struct list_node *behind = &worker->waiting.head;
    uint32_t count = 0;
    job->turn = worker->turn + 1;
    for (struct list_node *node = list_first(&worker->waiting); node;
         node = list_after(&worker->waiting, node)) {
        if (is_same_owner(job_at(node), job)) {
            job->turn = job_at(node)->turn + 1;
            count++;
        }
        if (job_at(node)->turn <= job->turn)
            behind = node;
    }
    if (count < NVT_JOBS_MAX)
        list_insert_behind(behind, &job->node);
    return count < NVT_JOBS_MAX;
}

bool nvt_worker_give(struct nvt_worker *worker, struct nvt_job *job)
{
    if (!worker->has_thread && !worker_start_thread(worker))
        return false;
    pthread_mutex_lock(&worker->lock);
    const bool has_room = put_in_turn(worker, job);
    if (has_room)
        pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->lock);
    return has_room;
}

static bool worker_is_in(const struct list *list, const struct nvt_job *job)
{
    for (struct list_node *node = list_first(list); node; node = list_after(list, node))
        if (node == &job->node)
            return true;
    return false;
}

bool nvt_worker_cancel(struct nvt_worker *worker, struct nvt_job *job)
{
    pthread_mutex_lock(&worker->lock);
    const bool waits = worker_is_in(&worker->waiting, job);
    if (waits)
        list_remove(&job->node);
    pthread_mutex_unlock(&worker->lock);
    return waits;
}

static struct nvt_job *take_done(struct nvt_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    struct list_node *node = list_first(&worker->done);
    if (node)
        list_remove(node);
    else
        atomic_store_explicit(&worker->has_done, false, memory_order_relaxed);
    pthread_mutex_unlock(&worker->lock);
    return node ? job_at(node) : NULL;
}

bool nvt_worker_has_done(const struct nvt_worker *worker)
{
    return atomic_load_explicit(&worker->has_done, memory_order_acquire);
}

bool nvt_worker_reap(struct nvt_worker *worker)
{
    struct nvt_job *job;
    if (!nvt_worker_has_done(worker))
        return false;
    while ((job = take_done(worker)))
        job->done(job); /* may give another */
    return true;
}

void nvt_worker_close(struct nvt_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    worker->ends = true;
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->lock);
    if (worker->has_thread)
        pthread_join(worker->thread, NULL);
    close(worker->event_fd);
    pthread_cond_destroy(&worker->wake);
    pthread_mutex_destroy(&worker->lock);
}
