/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/medium/workers.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* Enough for a disk to be busy while another call returns. */
enum { WORKERS = 4 };

struct snap_workers {
    int file_fd, event_fd;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct snap_line waiting, ended; /* by `lock`, like what follows */
    bool is_ending;
    pthread_t threads[WORKERS];
    uint32_t threads_count;
};

static ssize_t worker_call_once(int fd, const struct snap_io *io, uint32_t moved)
{
    char *data = io->data;
    const off_t at = (off_t)(io->offset + moved);
    if (io->kind == SNAP_IO_WRITE)
        return pwrite(fd, data + moved, io->bytes - moved, at);
    return pread(fd, data + moved, io->bytes - moved, at);
}

static int worker_execute(int fd, const struct snap_io *io)
{
    if (io->kind == SNAP_IO_FLUSH)
        return fdatasync(fd) ? -errno : 0;
    for (uint32_t moved = 0; moved < io->bytes;) {
        const ssize_t bytes = worker_call_once(fd, io, moved);
        if (bytes < 0 && errno != EINTR)
            return -errno;
        if (!bytes) /* the file has become shorter */
            return io->kind == SNAP_IO_WRITE ? -ENOSPC : -EIO;
        moved += bytes > 0 ? (uint32_t)bytes : 0;
    }
    return 0;
}

static void *worker_run(void *argument)
{
    struct snap_workers *workers = argument;
    const uint64_t one = 1;
    pthread_mutex_lock(&workers->lock);
    while (!workers->is_ending) {
        struct snap_io *io = snap_line_take(&workers->waiting);
        if (!io) {
            pthread_cond_wait(&workers->more, &workers->lock);
            continue;
        }
        pthread_mutex_unlock(&workers->lock);
        const int result = worker_execute(workers->file_fd, io);
        pthread_mutex_lock(&workers->lock);
        snap_ended_add(&workers->ended, io, result);
        (void)!write(workers->event_fd, &one, sizeof(one));
    }
    pthread_mutex_unlock(&workers->lock);
    return NULL;
}

/* The program's signals are its own threads'. */
static int start_workers(struct snap_workers *workers)
{
    sigset_t all, before;
    int code = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (!code && workers->threads_count < WORKERS) {
        pthread_t *thread = &workers->threads[workers->threads_count];
        code = pthread_create(thread, NULL, worker_run, workers);
        workers->threads_count += !code;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return workers->threads_count ? 0 : -code; /* one will do */
}

int snap_workers_open(int file_fd, int event_fd, struct snap_workers **out)
{
    struct snap_workers *workers = calloc(1, sizeof(*workers));
    if (!workers)
        return -ENOMEM;
    workers->file_fd = file_fd;
    workers->event_fd = event_fd;
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->more, NULL);
    const int code = start_workers(workers);
    if (code)
        free(workers);
    else
        *out = workers;
    return code;
}

void snap_workers_close(struct snap_workers *workers, bool is_forked)
{
    if (!is_forked) {
        pthread_mutex_lock(&workers->lock);
        workers->is_ending = true;
        pthread_cond_broadcast(&workers->more);
        pthread_mutex_unlock(&workers->lock);
        for (uint32_t i = 0; i < workers->threads_count; i++)
            pthread_join(workers->threads[i], NULL);
        pthread_cond_destroy(&workers->more);
        pthread_mutex_destroy(&workers->lock);
    }
    free(workers);
}

void snap_workers_add(struct snap_workers *workers, struct snap_io *io)
{
    pthread_mutex_lock(&workers->lock);
    snap_line_add(&workers->waiting, io);
    pthread_cond_signal(&workers->more);
    pthread_mutex_unlock(&workers->lock);
}

void snap_workers_take(struct snap_workers *workers, struct snap_line *ended)
{
    struct snap_io *io;
    pthread_mutex_lock(&workers->lock);
    while ((io = snap_line_take(&workers->ended)))
        snap_line_add(ended, io);
    pthread_mutex_unlock(&workers->lock);
}
