/* SPDX-License-Identifier: BSD-2-Clause */
/* The helper threads: they copy beside the program, with less right to processors than it has. */
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/serve/thread.h"
#include "common/time/units.h"
#include "snapshot/capture/inside.h"
#include "snapshot/capture/plant.h"

/* Faults of its own reads end the reads (faults.h): a fault that is blocked ends the program. */
static void unblock_faults(void)
{
    sigset_t faults;
    sigemptyset(&faults);
    sigaddset(&faults, SIGBUS);
    sigaddset(&faults, SIGFPE);
    sigaddset(&faults, SIGILL);
    sigaddset(&faults, SIGSEGV);
    pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
}

/* The kernel likes to wake a thread where the one runs that has called it: there it would take
 * turns with the program. So it moves to another processor, if it may run on one; and may run on
 * all again from then on. */
static void helper_keep_off(int processor)
{
    cpu_set_t all, others;
    if (processor < 0 || sched_getcpu() != processor ||
        sched_getaffinity(0, sizeof(all), &all) != 0)
        return;
    others = all;
    CPU_CLR((size_t)processor, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof(others), &others) == 0)
        sched_setaffinity(0, sizeof(all), &all);
}

static uint64_t thread_processor_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec;
}

void snap_helper_do(struct snap_capture *capture, struct snap_worker *worker, struct snap_job *job)
{
    if (SNAP_IS_PLANTED(SNAP_PLANT_EARLY) && job->phase == SNAP_PHASE_COPY) {
        job->sums = snap_ring_sums(&capture->ring, job->slot);
        snap_phase_end_job(capture, job);
    }
    pthread_mutex_unlock(&capture->lock);
    const uint64_t before_ns = thread_processor_ns();
    snap_job_do(capture, worker, job);
    const uint64_t used_ns = thread_processor_ns() - before_ns;
    pthread_mutex_lock(&capture->lock);
    capture->info.processor_ns += used_ns;
    if (!SNAP_IS_PLANTED(SNAP_PLANT_EARLY) || job->phase != SNAP_PHASE_COPY)
        snap_phase_end_job(capture, job);
}

static void *run_helper(void *arg)
{
    struct snap_helper *helper = arg;
    struct snap_capture *capture = helper->capture;
    struct snap_job job;
    uint64_t number = 0;
    unblock_faults();
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), SNAP_HELPER_NICENESS);
    pthread_mutex_lock(&capture->lock);
    while (!capture->is_closing) {
        if (!snap_phase_next(capture, &job)) {
            pthread_cond_wait(&capture->work, &capture->lock);
            continue;
        }
        if (number != capture->number)
            helper_keep_off(capture->caller_processor);
        number = capture->number;
        snap_helper_do(capture, &helper->worker, &job);
    }
    pthread_mutex_unlock(&capture->lock);
    return NULL;
}

int snap_helpers_start(struct snap_capture *capture)
{
    for (uint32_t i = 0; i < capture->options.helpers; i++) {
        struct snap_helper *helper = &capture->helpers[i];
        helper->capture = capture;
        const int code = mover_thread_start(&helper->thread, run_helper, helper);
        if (code) {
            snap_helpers_stop(capture);
            return -code;
        }
        capture->helpers_count++;
    }
    return 0;
}

void snap_helpers_stop(struct snap_capture *capture)
{
    pthread_mutex_lock(&capture->lock);
    capture->is_closing = true;
    pthread_cond_broadcast(&capture->work);
    pthread_mutex_unlock(&capture->lock);
    for (uint32_t i = 0; i < capture->helpers_count; i++)
        pthread_join(capture->helpers[i].thread, NULL);
    capture->helpers_count = 0;
}
