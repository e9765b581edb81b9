/* SPDX-License-Identifier: BSD-2-Clause */
/* The thread of I/O: takes turns, and sleeps between them until a sink, the capture, another rank
 * or the program has something for it. */
#include <poll.h>
#include <unistd.h>

#include "snapshot/session/session.h"

enum { FDS_MAX = 2 + SW_SNAP_SINKS_MAX, BLIND_POLL_MS = 1 };

/* The caller has the door first, so whoever asked before gets the lock before. */
void snap_session_lock(struct sw_snap *snap)
{
    pthread_mutex_lock(&snap->door);
    pthread_mutex_lock(&snap->lock);
    pthread_mutex_unlock(&snap->door);
}

void snap_session_unlock(struct sw_snap *snap)
{
    pthread_mutex_unlock(&snap->lock);
}

void snap_session_wake(struct sw_snap *snap)
{
    (void)!write(snap->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
}

bool snap_session_is_idle(const struct sw_snap *snap)
{
    return !snap->save.is_active && (!snap->ranks || !snap_ranks_asking(snap->ranks));
}

struct sleep {
    struct pollfd fds[FDS_MAX];
    nfds_t count;
    int timeout_ms; /* 0: there is something to do already */
};

static void watch_fd(struct sleep *sleep, int fd)
{
    sleep->fds[sleep->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

static void watch_sink(struct sleep *sleep, const struct snap_sink *sink)
{
    struct snap_medium *medium = snap_store_medium(sink->store);
    if (!medium->ops->arm(medium))
        sleep->timeout_ms = 0;
    else if (medium->fd >= 0)
        watch_fd(sleep, medium->fd);
    else if (sleep->timeout_ms && sink->stage != SNAP_SINK_IDLE)
        sleep->timeout_ms = BLIND_POLL_MS;
}

static void prepare_sleep(struct sw_snap *snap, struct sleep *sleep)
{
    sleep->count = 0;
    sleep->timeout_ms = snap->has_moved ? 0 : -1;
    watch_fd(sleep, snap->wake_fd);
    watch_fd(sleep, snap_capture_fd(snap->capture));
    for (uint32_t i = 0; i < snap->options.sinks_count; i++)
        if (snap_sink_is_live(&snap->sinks[i]))
            watch_sink(sleep, &snap->sinks[i]);
}

void *snap_session_run(void *context)
{
    struct sw_snap *snap = context;
    struct sleep sleep;
    for (;;) {
        uint64_t count;
        snap_session_lock(snap);
        if (snap->is_closing)
            break;
        snap_save_step(snap);
        prepare_sleep(snap, &sleep);
        snap_session_unlock(snap);
        if (poll(sleep.fds, sleep.count, sleep.timeout_ms) > 0 && sleep.fds[0].revents)
            (void)!read(snap->wake_fd, &count, sizeof(count));
    }
    snap_session_unlock(snap);
    return NULL;
}
