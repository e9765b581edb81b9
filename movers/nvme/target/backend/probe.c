/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "common/serve/disk.h"
#include "common/serve/holes.h"
#include "common/serve/thread.h"
#include "common/time/clock.h"

struct probe {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_answer, is_left; /* nobody waits any more: the thread frees it */
    int answer;
    bool is_mapped, is_filled;
    char path[PATH_MAX];
};

static void free_probe(struct probe *probe)
{
    pthread_cond_destroy(&probe->changed);
    pthread_mutex_destroy(&probe->lock);
    free(probe);
}

static int flush_cache(int fd)
{
    return fsync(fd) && !mover_disk_is_refusal(errno) ? -errno : 0;
}

/* Its pages are the cache's: of a file system without O_DIRECT, too. */
static bool is_cached(const struct probe *probe)
{
    const int flags = O_RDONLY | O_DIRECT | O_NONBLOCK | O_CLOEXEC;
    const int fd = probe->is_mapped ? -1 : open(probe->path, flags);
    const bool lacks_direct = fd < 0 && errno == EINVAL;
    if (fd >= 0)
        close(fd);
    return probe->is_mapped || lacks_direct;
}

static int ask_disk_of(const struct probe *probe)
{
    uint64_t holes;
    const int flags = (probe->is_filled ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_CLOEXEC;
    const int fd = open(probe->path, flags);
    if (fd < 0)
        return 0;
    if (probe->is_filled && !flock(fd, LOCK_EX | LOCK_NB)) /* nobody serves it */
        (void)mover_holes_fill(fd, &holes);
    const int answer = is_cached(probe) ? flush_cache(fd) : 0;
    close(fd);
    return answer;
}

static void *run_probe(void *arg)
{
    struct probe *probe = arg;
    const int answer = ask_disk_of(probe);
    pthread_mutex_lock(&probe->lock);
    probe->answer = answer;
    probe->has_answer = true;
    const bool is_left = probe->is_left;
    pthread_cond_signal(&probe->changed);
    pthread_mutex_unlock(&probe->lock);
    if (is_left)
        free_probe(probe);
    return NULL;
}

static bool start_probe(struct probe *probe)
{
    pthread_t thread;
    return !mover_thread_start(&thread, run_probe, probe) && !pthread_detach(thread);
}

static struct probe *make_probe(const char *path, bool is_mapped, bool is_filled)
{
    pthread_condattr_t attr;
    struct probe *probe = calloc(1, sizeof(*probe));
    if (!probe)
        return NULL;
    probe->is_mapped = is_mapped;
    probe->is_filled = is_filled;
    snprintf(probe->path, sizeof(probe->path), "%s", path);
    pthread_mutex_init(&probe->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&probe->changed, &attr);
    pthread_condattr_destroy(&attr);
    return probe;
}

int nvt_probe(const char *path, bool is_mapped, bool is_filled, uint32_t wait_ms)
{
    struct probe *probe = make_probe(path, is_mapped, is_filled);
    const uint64_t end_ns = mover_now_ns() + wait_ms * NS_PER_MS;
    const struct timespec end = {.tv_sec = (time_t)(end_ns / NS_PER_S),
                                 .tv_nsec = (long)(end_ns % NS_PER_S)};
    if (!probe || !start_probe(probe)) {
        if (probe)
            free_probe(probe);
        return 0; /* not known */
    }
    pthread_mutex_lock(&probe->lock);
    while (!probe->has_answer && !pthread_cond_timedwait(&probe->changed, &probe->lock, &end))
        ;
    const bool has_answer = probe->has_answer;
    const int answer = has_answer ? probe->answer : -ETIMEDOUT;
    probe->is_left = !has_answer;
    pthread_mutex_unlock(&probe->lock);
    if (has_answer)
        free_probe(probe);
    return answer;
}
