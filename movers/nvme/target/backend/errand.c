/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/errand.h"

#include <errno.h>
#include <time.h>

#include "common/serve/thread.h"
#include "common/time/clock.h"

static void end_errand(struct nvt_errand *errand)
{
    pthread_cond_destroy(&errand->changed);
    pthread_mutex_destroy(&errand->lock);
}

static void *run_errand(void *arg)
{
    struct nvt_errand *errand = arg;
    errand->work(errand);
    pthread_mutex_lock(&errand->lock);
    errand->is_done = true;
    const bool is_left = errand->is_left;
    pthread_cond_signal(&errand->changed);
    pthread_mutex_unlock(&errand->lock);
    if (is_left) {
        end_errand(errand);
        errand->drop(errand);
    }
    return NULL;
}

static void begin_errand(struct nvt_errand *errand)
{
    pthread_condattr_t attr;
    errand->is_done = errand->is_left = false;
    pthread_mutex_init(&errand->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&errand->changed, &attr);
    pthread_condattr_destroy(&attr);
}

int nvt_errand_run(struct nvt_errand *errand, uint32_t wait_ms)
{
    pthread_t thread;
    const uint64_t end_ns = mover_now_ns() + wait_ms * NS_PER_MS;
    const struct timespec end = {.tv_sec = (time_t)(end_ns / NS_PER_S),
                                 .tv_nsec = (long)(end_ns % NS_PER_S)};
    begin_errand(errand);
    const int code = mover_thread_start(&thread, run_errand, errand);
    if (code) {
        end_errand(errand);
        return -code;
    }
    pthread_detach(thread);
    pthread_mutex_lock(&errand->lock);
    while (!errand->is_done && !pthread_cond_timedwait(&errand->changed, &errand->lock, &end))
        ;
    const bool is_done = errand->is_done;
    errand->is_left = !is_done;
    pthread_mutex_unlock(&errand->lock);
    if (!is_done)
        return -ETIMEDOUT;
    end_errand(errand);
    return 0;
}
