/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Channels are found by the inode of their pipe: a table of buckets whose chains only grow, so that
 * looking needs no lock, and fstat() of a pipe in a signal handler none either.
 */
#include "rdmacm/connections/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/minmax.h"
#include "link/engine.h"
#include "rdmacm/connections/id.h"
#include "rdmacm/lock.h"
#include "rdmacm/mads/agent.h"
#include "rdmacm/rdmacm.h"

#define BUCKETS 256u
#define FLUSH_MAX 64u /* bytes written at once */

atomic_uint sw_ucm_channel_count;
static _Atomic(struct sw_ucm_channel *) buckets[BUCKETS];
static _Atomic uint64_t pipe_device; /* st_dev of all pipes */
static struct sw_ucm_channel *owing; /* those that owe bytes; the engine's alone */

/* The C library's may be hooked by the layer above, and by others. */
static int stat_fd(int fd, struct stat *out)
{
#ifdef SYS_newfstatat
    return (int)syscall(SYS_newfstatat, fd, "", out, AT_EMPTY_PATH);
#else
    return fstat(fd, out);
#endif
}

/* Not by write(), whose hook takes either end of the pipe for the channel. */
static long channel_put_bytes(const struct sw_ucm_channel *channel, uint32_t count)
{
    static const char zeros[FLUSH_MAX];
    return syscall(SYS_write, channel->write_fd, zeros, (size_t)count);
}

struct sw_ucm_channel *sw_ucm_channel_find(uint64_t inode)
{
    struct sw_ucm_channel *channel =
        inode ? atomic_load_explicit(&buckets[inode % BUCKETS], memory_order_acquire) : NULL;
    while (channel && atomic_load_explicit(&channel->inode, memory_order_acquire) != inode)
        channel = channel->bucket_next;
    return channel;
}

bool sw_ucm_is_channel(dev_t device, ino_t inode)
{
    return atomic_load_explicit(&sw_ucm_channel_count, memory_order_relaxed) &&
           device == atomic_load_explicit(&pipe_device, memory_order_relaxed) &&
           sw_ucm_channel_find(inode);
}

uint64_t sw_ucm_channel_inode(int fd)
{
    struct stat status;
    if (stat_fd(fd, &status) || !S_ISFIFO(status.st_mode) ||
        !sw_ucm_is_channel(status.st_dev, status.st_ino))
        return 0;
    return status.st_ino;
}

struct sw_ucm_channel *sw_ucm_channel_of_fd(int fd)
{
    return sw_ucm_channel_find(sw_ucm_channel_inode(fd));
}

/* A free node of the inode's bucket, or a new one at its front. */
static struct sw_ucm_channel *claim_node(uint64_t inode)
{
    _Atomic(struct sw_ucm_channel *) *bucket = &buckets[inode % BUCKETS];
    struct sw_ucm_channel *first = atomic_load_explicit(bucket, memory_order_relaxed);
    for (struct sw_ucm_channel *node = first; node; node = node->bucket_next)
        if (!atomic_load_explicit(&node->inode, memory_order_relaxed))
            return node;
    struct sw_ucm_channel *node = calloc(1, sizeof(*node));
    if (!node)
        return NULL;
    node->bucket_next = first;
    atomic_store_explicit(bucket, node, memory_order_release); /* pairs with channel_find */
    return node;
}

int sw_ucm_channel_create(int flags, int *fd)
{
    sw_rdmacm_assert_locked();
    int ends[2];
    struct stat status;
    /* Bytes are ours alone: the write end never blocks. The read end is the program's. */
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
        return -errno;
    struct sw_ucm_channel *channel = stat_fd(ends[1], &status) ? NULL : claim_node(status.st_ino);
    if (!channel) {
        close(ends[0]);
        close(ends[1]);
        return -ENOMEM;
    }
    if (!(flags & O_CLOEXEC))
        fcntl(ends[0], F_SETFD, 0);
    if (!(flags & O_NONBLOCK))
        fcntl(ends[0], F_SETFL, 0);
    channel->write_fd = ends[1];
    channel->bytes = channel->owed = channel->event_count = 0;
    channel->first = NULL;
    channel->end = &channel->first;
    channel->ids = NULL;
    atomic_store(&channel->getter_tid, 0);
    atomic_store_explicit(&pipe_device, status.st_dev, memory_order_relaxed);
    atomic_fetch_add_explicit(&sw_ucm_channel_count, 1, memory_order_relaxed);
    atomic_store_explicit(&channel->inode, status.st_ino, memory_order_release);
    sw_engine_watch(channel->write_fd, channel, SW_WATCH_CM_CHANNEL);
    *fd = ends[0];
    return 0;
}

static void forget_channel(struct sw_ucm_channel *channel)
{
    while (channel->first) {
        struct sw_ucm_event *event = channel->first;
        channel->first = event->next;
        free(event);
    }
    channel->owed = 0;
    close(channel->write_fd);
    atomic_store_explicit(&channel->inode, 0, memory_order_release);
    atomic_fetch_sub_explicit(&sw_ucm_channel_count, 1, memory_order_relaxed);
}

/* The engine's: something happened to a write end, which can only be that nobody reads. */
void sw_ucm_channel_closed(uint64_t what)
{
    struct sw_ucm_channel *channel = (void *)(uintptr_t)what;
    pthread_mutex_lock(&sw_rdmacm_lock);
    struct pollfd end = {.fd = channel->write_fd};
    if (atomic_load(&channel->inode) && poll(&end, 1, 0) == 1 && (end.revents & POLLERR)) {
        sw_engine_unwatch(channel->write_fd);
        sw_ucm_id_destroy_all(channel);
        forget_channel(channel);
    }
    pthread_mutex_unlock(&sw_rdmacm_lock);
}

void sw_ucm_channel_fork_child(void)
{
    for (; owing; owing = owing->owing_next)
        owing->is_owing = false;
    for (unsigned int i = 0; i < BUCKETS; i++)
        for (struct sw_ucm_channel *channel = buckets[i]; channel; channel = channel->bucket_next)
            if (atomic_load(&channel->inode))
                forget_channel(channel);
}

static void owe_byte(struct sw_ucm_channel *channel)
{
    channel->owed++;
    if (channel->is_owing)
        return;
    channel->is_owing = true;
    channel->owing_next = owing;
    owing = channel;
}

static void write_byte(struct sw_ucm_channel *channel)
{
    /* A full pipe has enough to wake everybody; the rest follows as events are taken. */
    if (channel_put_bytes(channel, 1) == 1)
        channel->bytes++;
}

/* A channel that owes, and what it does; its bytes count as written. NULL: none does. */
static struct sw_ucm_channel *take_owing(uint32_t *count)
{
    struct sw_ucm_channel *channel;
    do {
        channel = owing;
        if (!channel)
            return NULL;
        owing = channel->owing_next;
        channel->is_owing = false;
    } while (!channel->owed);
    *count = sw_min_u32(channel->owed, FLUSH_MAX);
    channel->owed -= *count;
    channel->bytes += *count;
    if (channel->owed) {
        channel->is_owing = true;
        channel->owing_next = owing;
        owing = channel;
    }
    return channel;
}

/* Only the engine closes a write end, so it needs no lock to write to it. */
void sw_ucm_channel_flush(void)
{
    uint32_t count = 0;
    while (owing) {
        pthread_mutex_lock(&sw_rdmacm_lock);
        struct sw_ucm_channel *channel = take_owing(&count);
        pthread_mutex_unlock(&sw_rdmacm_lock);
        if (!channel)
            return;
        const long done = channel_put_bytes(channel, count);
        if (done == (long)count)
            continue;
        pthread_mutex_lock(&sw_rdmacm_lock);
        channel->bytes -= count - (done > 0 ? (uint32_t)done : 0);
        pthread_mutex_unlock(&sw_rdmacm_lock);
    }
}

/* Nobody may find a byte without an event: reads those that are too many, by another description of
 * the pipe's read end. Without /proc they stay, and their readers wait on. */
static void take_bytes_back(struct sw_ucm_channel *channel)
{
    char path[32], bytes[256];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", channel->write_fd);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    while (channel->bytes > channel->event_count) {
        size_t excess = channel->bytes - channel->event_count;
        ssize_t got = read(fd, bytes, sw_min_size(excess, sizeof(bytes)));
        if (got <= 0)
            break; /* others have read them and are about to find out */
        channel->bytes -= (uint32_t)got;
    }
    close(fd);
}

void sw_ucm_channel_push(struct sw_ucm_channel *channel, struct sw_ucm_event *event)
{
    sw_rdmacm_assert_locked();
    event->next = NULL;
    *channel->end = event;
    channel->end = &event->next;
    channel->event_count++;
    if (sw_engine_is_self())
        owe_byte(channel);
    else
        write_byte(channel);
}

struct sw_ucm_event *sw_ucm_channel_peek(struct sw_ucm_channel *channel)
{
    sw_rdmacm_assert_locked();
    channel->bytes--;
    return channel->first;
}

void sw_ucm_channel_pop(struct sw_ucm_channel *channel)
{
    sw_rdmacm_assert_locked();
    channel->first = channel->first->next;
    if (!channel->first)
        channel->end = &channel->first;
    channel->event_count--;
    if (channel->bytes + channel->owed < channel->event_count)
        write_byte(channel);
}

void sw_ucm_channel_unread(struct sw_ucm_channel *channel)
{
    sw_rdmacm_assert_locked();
    write_byte(channel);
}

struct sw_ucm_event *sw_ucm_channel_take(struct sw_ucm_channel *channel, sw_ucm_event_match match,
                                         const void *of)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_event *taken = NULL, **taken_end = &taken;
    channel->end = &channel->first;
    while (*channel->end) {
        struct sw_ucm_event *event = *channel->end;
        if (match(event, of)) {
            *channel->end = event->next;
            event->next = NULL;
            *taken_end = event;
            taken_end = &event->next;
            channel->event_count--;
        } else {
            channel->end = &event->next;
        }
    }
    while (channel->owed && channel->bytes + channel->owed > channel->event_count)
        channel->owed--;
    if (channel->bytes > channel->event_count)
        take_bytes_back(channel);
    return taken;
}
