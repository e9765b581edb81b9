/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting for what is in a set: by polling, in the kernel, or for both. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/minmax.h"
#include "sockets/epoll_impl.h"
#include "sockets/rdma.h"
#include "sockets/real.h"
#include "sockets/wait.h"

/* While RDMA keeps the program busy, the kernel is asked this often. */
#define KERNEL_NS (20 * SW_NS_PER_US)
/* Data that an edge-triggered program leaves unread wakes nobody: so long may new data behind it
 * take to be told. */
#define UNREAD_NS (10 * SW_NS_PER_MS)

static size_t tell_item(struct sw_epoll_item *item, short shown, struct epoll_event *out,
                        bool *respent)
{
    uint32_t ready = sw_epoll_item_judge(item, shown);
    if (!ready)
        return 0;
    out->events = ready;
    out->data = item->data;
    if (item->events & EPOLLONESHOT)
        item->spent = *respent = true;
    return 1;
}

/* Under the lock: connections that are ready, each in its turn. */
static size_t look_at_items(struct sw_epoll *epoll, struct epoll_event *out, size_t max)
{
    size_t found = 0, count = epoll->connections;
    bool respent = false;
    struct pollfd *fds = epoll->fds + epoll->listeners;
    const uint32_t *fd_item = epoll->fd_item + epoll->listeners;
    if (count && (sw_rdma.rpoll(fds, count, 0) > 0 || atomic_load(&sw_sock_ended))) {
        size_t at = epoll->turn < count ? epoll->turn : 0;
        for (size_t i = 0; i < count && found < max; i++) {
            if (fds[at].revents || atomic_load(&epoll->items[fd_item[at]].sock->ended))
                found +=
                    tell_item(&epoll->items[fd_item[at]], fds[at].revents, out + found, &respent);
            at = at + 1 < count ? at + 1 : 0;
        }
        epoll->turn = at;
    }
    for (size_t i = 0; epoll->lost && i < epoll->count && found < max; i++)
        if (sw_sock_way(epoll->items[i].sock) == SW_WAY_LOST && !epoll->items[i].spent)
            found += tell_item(&epoll->items[i], 0, out + found, &respent);
    if (respent)
        sw_epoll_rebuild(epoll);
    return found;
}

/* Under the lock: clients that wait to be accepted. Accepting one of several leaves the others, so
 * the edge is that of the level. */
static size_t look_listeners(struct sw_epoll *epoll, struct epoll_event *out, size_t max)
{
    size_t found = 0;
    bool respent = false;
    struct pollfd *fds = epoll->fds;
    if (!epoll->listeners || sw_rdma.rpoll(fds, epoll->listeners, 0) <= 0)
        return 0;
    for (size_t i = 0; i < epoll->listeners && found < max; i++) {
        struct sw_epoll_item *item = &epoll->items[epoll->fd_item[i]];
        if (!(fds[i].revents & POLLIN) || !(item->events & EPOLLIN))
            continue;
        out[found++] = (struct epoll_event){.events = EPOLLIN, .data = item->data};
        if (item->events & EPOLLONESHOT)
            item->spent = respent = true;
    }
    if (respent)
        sw_epoll_rebuild(epoll);
    return found;
}

/* Takes our own event out of what the kernel told. */
static int filter_events(struct sw_epoll *epoll, struct epoll_event *out, int count)
{
    for (int i = 0; i < count; i++)
        if (out[i].data.ptr == epoll) {
            uint64_t many;
            if (SW_REAL(read)(epoll->wake, &many, sizeof(many)) < 0)
                many = 0;
            out[i--] = out[--count];
        }
    return count;
}

/* Sleeps for the kernel's set and all connections. The snapshot holds a reference to each. */
static int sleep_mixed(struct sw_epoll *epoll, int epfd, uint64_t limit_ns)
{
    pthread_mutex_lock(&epoll->lock);
    size_t total = epoll->connections + epoll->listeners, count = 0;
    struct pollfd *fds = malloc((2 * total + 2) * sizeof(*fds));
    struct sw_sock **held = malloc((total + 1) * sizeof(*held));
    uint64_t soon_ns = sw_clock_ns() + UNREAD_NS;
    for (size_t i = 0; fds && held && i < total; i++) {
        struct sw_epoll_item *item = &epoll->items[epoll->fd_item[i]];
        if (item->dead)
            continue;
        fds[count] = epoll->fds[i];
        if (item->events & EPOLLET && i >= epoll->listeners) {
            if (item->in_told && item->drained == atomic_load(&item->sock->drained)) {
                fds[count].events &= ~POLLIN;
                limit_ns = sw_min_u64(limit_ns, soon_ns);
            }
            if (item->out_told && item->blocked == atomic_load(&item->sock->blocked))
                fds[count].events &= ~POLLOUT;
        }
        held[count] = item->sock;
        atomic_fetch_add(&item->sock->file.refs, 1);
        count++;
    }
    atomic_fetch_add(&epoll->sleepers, 1);
    pthread_mutex_unlock(&epoll->lock);
    int failed = 0;
    if (fds && held) {
        for (size_t i = 0; i < count; i++) {
            /* A listener's comes to nothing: it has none. */
            int channel = atomic_load(&held[i]->channel);
            fds[count + i] = (struct pollfd){.fd = channel < 0 ? epfd : channel, .events = POLLIN};
        }
        fds[2 * count] = (struct pollfd){.fd = epfd, .events = POLLIN};
        failed = sw_wait_sleep(fds, 2 * count + 1, limit_ns);
        for (size_t i = 0; !failed && i < count; i++)
            if (atomic_load(&held[i]->channel) >= 0)
                sw_wait_note_channel(held[i], fds[count + i].revents);
    }
    atomic_fetch_sub(&epoll->sleepers, 1);
    for (size_t i = 0; i < count; i++)
        sw_sock_put(held[i]);
    free(fds);
    free(held);
    return failed;
}

bool sw_epoll_enter(struct sw_epoll *epoll)
{
    atomic_fetch_add(&epoll->kernel_sleepers, 1);
    if (!sw_epoll_has_rdma(epoll))
        return true;
    atomic_fetch_sub(&epoll->kernel_sleepers, 1);
    return false;
}

int sw_epoll_left(struct sw_epoll *epoll, struct epoll_event *out, int count)
{
    atomic_fetch_sub(&epoll->kernel_sleepers, 1);
    return count <= 0 ? count : filter_events(epoll, out, count);
}

/* Nothing is RDMA's: the kernel waits, and we are woken if that changes. */
static int wait_kernel(struct sw_epoll *epoll, int epfd, struct epoll_event *out, int max,
                       uint64_t limit_ns)
{
    int ms = -1;
    if (limit_ns != SW_FOREVER) {
        uint64_t now_ns = sw_clock_ns();
        uint64_t left =
            limit_ns > now_ns ? (limit_ns - now_ns + SW_NS_PER_MS - 1) / SW_NS_PER_MS : 0;
        ms = left > INT_MAX ? INT_MAX : (int)left;
    }
    return sw_epoll_enter(epoll)
               ? sw_epoll_left(epoll, out, SW_REAL(epoll_wait)(epfd, out, max, ms))
               : 0;
}

static int epoll_wait_ask_kernel(struct sw_epoll *epoll, int epfd, struct epoll_event *out, int max)
{
    int count = max > 0 ? SW_REAL(epoll_wait)(epfd, out, max, 0) : 0;
    return count > 0 ? filter_events(epoll, out, count) : 0;
}

/* `must`: ask the kernel, too, if there is nothing else. Either of the two may have more than fits,
 * so they are first in turn. */
static int look_all(struct sw_epoll *epoll, int epfd, struct epoll_event *out, int max,
                    uint64_t now_ns, bool must)
{
    bool ask = now_ns - epoll->kernel_asked_ns > KERNEL_NS;
    bool kernel_first = ask && (epoll->kernel_first = !epoll->kernel_first);
    int count = kernel_first ? epoll_wait_ask_kernel(epoll, epfd, out, max) : 0;
    pthread_mutex_lock(&epoll->lock);
    count += (int)look_at_items(epoll, out + count, (size_t)(max - count));
    ask = ask || (must && !count);
    if (ask) {
        epoll->kernel_asked_ns = now_ns;
        count += (int)look_listeners(epoll, out + count, (size_t)(max - count));
    }
    pthread_mutex_unlock(&epoll->lock);
    if (ask && !kernel_first)
        count += epoll_wait_ask_kernel(epoll, epfd, out + count, max - count);
    return count;
}

int sw_epoll_wait(struct sw_epoll *epoll, int epfd, struct epoll_event *out, int max,
                  uint64_t limit_ns)
{
    if (max <= 0 || !out) {
        errno = EINVAL;
        return -1;
    }
    uint64_t now_ns = sw_clock_ns(), poll_until_ns = now_ns + sw_wait_poll_ns();
    for (;; now_ns = sw_clock_ns()) {
        if (!sw_epoll_has_rdma(epoll)) {
            int count = wait_kernel(epoll, epfd, out, max, limit_ns);
            if (count || (!sw_epoll_has_rdma(epoll) && sw_clock_ns() >= limit_ns))
                return count;
            continue;
        }
        bool must = now_ns >= limit_ns || now_ns >= poll_until_ns;
        int count = look_all(epoll, epfd, out, max, now_ns, must);
        if (count && atomic_load(&epoll->kernel_sleepers))
            sw_epoll_wake(epoll);
        if (count || now_ns >= limit_ns)
            return count;
        if (now_ns < poll_until_ns) {
            sw_cpu_relax();
        } else if (sleep_mixed(epoll, epfd, limit_ns)) {
            errno = EINTR;
            return -1;
        }
    }
}

bool sw_epoll_is_ready(struct sw_epoll *epoll)
{
    bool ready = false;
    pthread_mutex_lock(&epoll->lock);
    size_t count = epoll->connections + epoll->listeners;
    if (count && sw_rdma.rpoll(epoll->fds, count, 0) > 0)
        for (size_t i = 0; i < count && !ready; i++) {
            struct sw_epoll_item *item = &epoll->items[epoll->fd_item[i]];
            uint32_t wanted = item->events & ~(uint32_t)SW_EPOLL_FLAGS;
            ready = epoll->fds[i].revents &&
                    sw_wait_translate(item->sock, epoll->fds[i].revents, (short)wanted);
        }
    pthread_mutex_unlock(&epoll->lock);
    return ready;
}
