/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/connections/getter.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "rdmacm/connections/channel.h"
#include "rdmacm/mads/agent.h"

#define PATIENCE_NS (200 * SW_NS_PER_MS)
#define FIRST_NAP_NS 50000L
#define LONGEST_NAP_NS 2000000L

/* A thread that has been waited for in vain. A server of rsockets takes the events of all its
 * channels with the thread that serves its clients, and another one destroys the IDs. */
static atomic_int vain_tid;

static int own_tid(void)
{
    return (int)syscall(SYS_gettid);
}

void sw_ucm_getter_leaves(struct sw_ucm_channel *channel)
{
    atomic_store(&channel->getter_tid, own_tid());
}

void sw_ucm_getter_returns(uint64_t inode)
{
    struct sw_ucm_channel *channel = sw_ucm_channel_find(inode);
    int tid = own_tid();
    if (channel)
        atomic_compare_exchange_strong(&channel->getter_tid, &tid, 0);
}

/* Whether the thread runs, or waits for a processor or a page: proc_pid_stat(5), the state. */
static bool is_busy(int tid)
{
    char path[48], text[64] = {0};
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    const ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    const char *end = got > 0 ? strrchr(text, ')') : NULL; /* of a name of 15 bytes at most */
    return end && end[1] == ' ' && (end[2] == 'R' || end[2] == 'D');
}

/* The thread that is away from a channel without IDs; 0: none is. */
static int find_away(uint64_t inode)
{
    pthread_mutex_lock(&sw_rdmacm_lock);
    const struct sw_ucm_channel *channel = sw_ucm_channel_find(inode);
    const int tid = channel && !channel->ids ? atomic_load(&channel->getter_tid) : 0;
    pthread_mutex_unlock(&sw_rdmacm_lock);
    return tid;
}

void sw_ucm_getter_await(uint64_t inode)
{
    const int tid = find_away(inode);
    const uint64_t until_ns = sw_clock_ns() + PATIENCE_NS;
    struct timespec nap = {.tv_nsec = FIRST_NAP_NS};
    if (!tid || tid == own_tid() || tid == atomic_load(&vain_tid))
        return;
    while (is_busy(tid)) {
        if (sw_clock_ns() >= until_ns) {
            atomic_store(&vain_tid, tid);
            return;
        }
        nanosleep(&nap, NULL);
        if (find_away(inode) != tid)
            return;
        nap.tv_nsec = nap.tv_nsec < LONGEST_NAP_NS ? 2 * nap.tv_nsec : nap.tv_nsec;
    }
}
