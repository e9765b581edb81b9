/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/adopt/adopt_monitor.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/log.h"
#include "base/thread.h"
#include "device/adopt/adopt_lock.h"
#include "device/adopt/held_calls.h"
#include "device/adopt/segment_life.h"

/* Each costs a descriptor. A whole group pays for what one of its segments is asked for. */
#define GROUPS 8

#define SEEN_TRIES 100
#define STACK_BYTES (1u << 20) /* ThreadSanitizer wants 900 KiB */
#define STACK_APART_BYTES (512u << 10)

enum state {
    STATE_NONE,
    STATE_STARTED, /* the thread runs, or will in a moment */
    STATE_REFUSED,
};

static _Atomic enum state state;

/* With the move lock held; descriptors plus 1, 0: not open. */
static struct {
    int epoll_plus_1;
    int fd_plus_1[GROUPS];
    struct sw_uffd uffds[GROUPS];
} monitor;

static int epoll_open(void)
{
    int fd = sw_fd_own(epoll_create1(EPOLL_CLOEXEC));
    if (fd < 0)
        return -errno;
    monitor.epoll_plus_1 = fd + 1;
    return 0;
}

static int epoll_add(unsigned int group)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = group};
    return epoll_ctl(monitor.epoll_plus_1 - 1, EPOLL_CTL_ADD, monitor.uffds[group].fd, &event)
               ? -errno
               : 0;
}

static void group_close(unsigned int group)
{
    if (monitor.fd_plus_1[group])
        close(monitor.uffds[group].fd);
    monitor.fd_plus_1[group] = 0;
}

static bool group_is_open(unsigned int group)
{
    if (!monitor.fd_plus_1[group])
        return false;
    if (!sw_fd_is_intact(monitor.uffds[group].fd)) /* closed by a raw system call */
        group_close(group);
    return monitor.fd_plus_1[group];
}

static int group_open(unsigned int group)
{
    struct sw_uffd *uffd = &monitor.uffds[group];
    int rc = monitor.epoll_plus_1 ? 0 : epoll_open();
    if (!rc)
        rc = sw_uffd_open_telling(uffd);
    if (rc)
        return rc;
    uffd->fd = sw_fd_own(uffd->fd);
    monitor.fd_plus_1[group] = uffd->fd + 1;
    rc = epoll_add(group);
    if (rc)
        group_close(group);
    return rc;
}

unsigned int sw_adopt_monitor_group(const struct sw_segment *segment)
{
    return segment->id % GROUPS;
}

const struct sw_uffd *sw_adopt_monitor_of(const struct sw_segment *segment)
{
    const unsigned int group = sw_adopt_monitor_group(segment);
    if (atomic_load(&state) != STATE_STARTED)
        return NULL;
    return group_is_open(group) || !group_open(group) ? &monitor.uffds[group] : NULL;
}

/* Does what the waiting call wants. It tells a moment before it sleeps, and is only seen asleep;
 * another process is never seen. */
static void held_attend(void)
{
    const struct timespec pause = {.tv_nsec = 50 * 1000};
    for (int i = 0; i < SEEN_TRIES && !sw_held_calls_each(sw_segments_discard_held); i++)
        nanosleep(&pause, NULL);
}

/* Somebody may be about to discard memory of the group. */
static void group_attend(unsigned int group)
{
    sw_adopt_lock();
    /* With the move lock held nobody waits for a page, so it is that. */
    if (group_is_open(group) && sw_uffd_has_told(&monitor.uffds[group])) {
        sw_segments_withdraw_group(group);
        do
            held_attend();
        while (sw_uffd_release_one(&monitor.uffds[group]) &&
               sw_uffd_has_told(&monitor.uffds[group]));
    }
    sw_adopt_unlock();
}

/* The program has closed the epoll by a raw system call. False: there is no other one. */
static bool epoll_reopen(void)
{
    sw_adopt_lock();
    if (monitor.epoll_plus_1)
        close(monitor.epoll_plus_1 - 1);
    monitor.epoll_plus_1 = 0;
    const bool open = !epoll_open();
    for (unsigned int i = 0; i < GROUPS; i++) {
        if (group_is_open(i) && (!open || epoll_add(i)))
            group_close(i); /* nobody must wait for what is not heard */
    }
    if (!open)
        atomic_store(&state, STATE_REFUSED);
    sw_adopt_unlock();
    return open;
}

static int epoll_number(void)
{
    sw_adopt_lock();
    int fd = monitor.epoll_plus_1 - 1;
    sw_adopt_unlock();
    return fd;
}

static void *monitor_main(void *arg)
{
    (void)arg;
    prctl(PR_SET_NAME, "sidewire-memory");
    for (;;) {
        struct epoll_event events[GROUPS];
        long count = syscall(SYS_epoll_pwait, epoll_number(), events, GROUPS, -1, NULL, 0);
        if (count < 0 && errno != EINTR && !epoll_reopen())
            return NULL;
        for (long i = 0; i < count; i++)
            group_attend(events[i].data.u32 % GROUPS);
    }
}

/* A stack far from all else: pages that are near the mover's own are not moved. NULL: no memory. */
static void *stack_new(void)
{
    const size_t len = STACK_BYTES + 2 * STACK_APART_BYTES;
    char *base = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    munlock(base, len); /* mlockall() */
    if (!mprotect(base + STACK_APART_BYTES, STACK_BYTES, PROT_READ | PROT_WRITE))
        return base;
    munmap(base, len);
    return NULL;
}

/* One in a process, and in each child of it. */
static int thread_start(void)
{
    static char *stack; /* a child has its parent's, where no thread stands */
    pthread_t thread;
    pthread_attr_t attr;
    stack = stack ? stack : stack_new();
    if (!stack)
        return -ENOMEM;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstack(&attr, stack + STACK_APART_BYTES, STACK_BYTES);
    const int rc = sw_thread_start(&thread, &attr, monitor_main, NULL);
    pthread_attr_destroy(&attr);
    return -rc;
}

void sw_adopt_monitor_start(void)
{
    enum state none = STATE_NONE;
    if (atomic_load(&state) != STATE_NONE ||
        !atomic_compare_exchange_strong(&state, &none, STATE_STARTED))
        return;
    sw_adopt_lock();
    int rc = group_open(0);
    sw_adopt_unlock();
    if (!rc)
        rc = thread_start();
    if (!rc)
        return;
    sw_debug("raw madvise() calls on registered memory are not followed: error %d", -rc);
    sw_adopt_lock();
    atomic_store(&state, STATE_REFUSED);
    for (unsigned int i = 0; i < GROUPS; i++)
        group_close(i);
    sw_adopt_unlock();
}

int sw_adopt_monitor_count(void)
{
    int count = monitor.epoll_plus_1 ? 1 : 0;
    for (unsigned int i = 0; i < GROUPS; i++)
        count += group_is_open(i);
    return count;
}

void sw_adopt_monitor_forget(void)
{
    for (unsigned int i = 0; i < GROUPS; i++)
        group_close(i);
    if (monitor.epoll_plus_1)
        close(monitor.epoll_plus_1 - 1);
    monitor.epoll_plus_1 = 0;
    atomic_store(&state, STATE_NONE);
}
