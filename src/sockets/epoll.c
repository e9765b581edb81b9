/* SPDX-License-Identifier: BSD-2-Clause */
#include "sockets/epoll.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "sockets/meet.h"
#include "sockets/rdma.h"
#include "sockets/real.h"
#include "sockets/wait.h"

/* While RDMA keeps the program busy, the kernel is asked this often. */
#define KERNEL_NS (20 * SW_NS_PER_US)
/* Data that an edge-triggered program leaves unread wakes nobody: so long may new data behind it
 * take to be told. */
#define UNREAD_NS (10 * SW_NS_PER_MS)
#define FLAGS (EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE)

struct item {
    struct sw_sock *sock;
    int fd;
    uint32_t events;
    epoll_data_t data;
    bool in_kernel, spent; /* spent: EPOLLONESHOT */
    int at;                /* its place in what is made of the items, -1: none */
    /* Edges: what was told, and what has to happen before it is told again. */
    bool in_told, out_told;
    unsigned drained, blocked;
    uint32_t end_told;
    uint64_t arrived; /* bytes, read and unread, when `in` was told */
    bool arrived_known;
    bool dead; /* it is at its end, and all that is asked for was told */
};

struct sw_epoll {
    struct sw_file file;
    pthread_mutex_t lock;
    int epfd, wake;
    struct item *items;
    size_t count, room;
    /* Made of the items: listeners, then connections. */
    struct pollfd *fds;
    uint32_t *fd_item;
    size_t connections, listeners, lost;
    size_t turn; /* who is looked at first */
    atomic_size_t rdma;
    atomic_int kernel_sleepers, sleepers;
    uint64_t kernel_asked_ns;
    bool kernel_first;
    struct sw_epoll *next;
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sw_epoll *all;

void sw_epoll_new(int epfd)
{
    struct sw_epoll *epoll = calloc(1, sizeof(*epoll));
    if (!epoll)
        return; /* then sockets in it go by TCP's rules: nothing is told of RDMA */
    sw_table_clear(epfd);
    epoll->file.kind = SW_KIND_EPOLL;
    epoll->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    epoll->epfd = epfd;
    epoll->wake = -1;
    pthread_mutex_lock(&all_lock);
    epoll->next = all;
    all = epoll;
    pthread_mutex_unlock(&all_lock);
    sw_table_set(epfd, &epoll->file);
}

void sw_epoll_end(struct sw_epoll *epoll)
{
    pthread_mutex_lock(&all_lock);
    for (struct sw_epoll **at = &all; *at; at = &(*at)->next)
        if (*at == epoll) {
            *at = epoll->next;
            break;
        }
    pthread_mutex_unlock(&all_lock);
    if (epoll->wake >= 0)
        SW_REAL(close)(epoll->wake);
    free(epoll->items);
    free(epoll->fds);
    free(epoll->fd_item);
    free(epoll);
}

bool sw_epoll_has_rdma(const struct sw_epoll *epoll)
{
    return atomic_load_explicit(&epoll->rdma, memory_order_acquire) != 0;
}

static short poll_events(uint32_t events)
{
    int out = 0;
    if (events & (EPOLLIN | EPOLLRDNORM | EPOLLRDHUP))
        out |= POLLIN;
    if (events & (EPOLLOUT | EPOLLWRNORM))
        out |= POLLOUT;
    return (short)out;
}

static void publish_count(struct sw_epoll *epoll)
{
    atomic_store_explicit(&epoll->rdma, epoll->connections + epoll->listeners + epoll->lost,
                          memory_order_release);
}

static bool is_connection(const struct item *item)
{
    int way = sw_sock_way(item->sock);
    return !item->spent && sw_sock_rs(item->sock) >= 0 && sw_way_is_rdma(way) && way != SW_WAY_LOST;
}

/* Appends what an item is to be watched by. */
static void append_item(struct sw_epoll *epoll, struct item *item)
{
    size_t at = epoll->listeners + epoll->connections;
    epoll->fds[at] =
        (struct pollfd){.fd = sw_sock_wait_fd(item->sock), .events = poll_events(item->events)};
    epoll->fd_item[at] = (uint32_t)(item - epoll->items);
    item->at = (int)at;
}

static void append_connection(struct sw_epoll *epoll, struct item *item)
{
    append_item(epoll, item);
    epoll->connections++;
}

static void take_out_connection(struct sw_epoll *epoll, struct item *item)
{
    size_t last = epoll->listeners + --epoll->connections;
    epoll->fds[item->at] = epoll->fds[last];
    epoll->fd_item[item->at] = epoll->fd_item[last];
    epoll->items[epoll->fd_item[last]].at = item->at;
    item->at = -1;
}

/* Under the lock, after changes of more than one connection. */
static void rebuild_set(struct sw_epoll *epoll)
{
    epoll->connections = epoll->listeners = epoll->lost = 0;
    for (size_t i = 0; i < epoll->count; i++) {
        struct item *item = &epoll->items[i];
        item->at = -1;
        if (!item->spent && sw_sock_way(item->sock) == SW_WAY_LISTEN &&
            sw_sock_rs(item->sock) >= 0) {
            append_item(epoll, item);
            epoll->listeners++;
        }
        epoll->lost += !item->spent && sw_sock_way(item->sock) == SW_WAY_LOST;
    }
    for (size_t i = 0; i < epoll->count; i++)
        if (is_connection(&epoll->items[i]))
            append_connection(epoll, &epoll->items[i]);
    publish_count(epoll);
}

/* Who sleeps looks again. */
static void wake_waiters(struct sw_epoll *epoll)
{
    uint64_t one = 1;
    if (epoll->wake >= 0 && (atomic_load(&epoll->sleepers) || atomic_load(&epoll->kernel_sleepers)))
        if (SW_REAL(write)(epoll->wake, &one, sizeof(one)) < 0)
            return; /* it is full: they are being woken */
}

static struct item *find_item(struct sw_epoll *epoll, struct sw_sock *sock, int fd)
{
    size_t hint = atomic_load_explicit(&sock->epoll_place, memory_order_relaxed);
    if (fd >= 0 && hint < epoll->count && epoll->items[hint].sock == sock &&
        epoll->items[hint].fd == fd)
        return &epoll->items[hint];
    for (size_t i = 0; i < epoll->count; i++)
        if (epoll->items[i].sock == sock && (fd < 0 || epoll->items[i].fd == fd)) {
            atomic_store_explicit(&sock->epoll_place, i, memory_order_relaxed);
            return &epoll->items[i];
        }
    return NULL;
}

static void item_remove(struct sw_epoll *epoll, struct item *item)
{
    *item = epoll->items[--epoll->count];
    if (item->at >= 0)
        epoll->fd_item[item->at] = (uint32_t)(item - epoll->items);
}

static int make_wake(struct sw_epoll *epoll, int epfd)
{
    epoll->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = epoll};
    if (epoll->wake >= 0 && SW_REAL(epoll_ctl)(epfd, EPOLL_CTL_ADD, epoll->wake, &event) == 0)
        return 0;
    return -1;
}

static int item_add(struct sw_epoll *epoll, int epfd, struct sw_sock *sock, int fd,
                    struct epoll_event *event)
{
    if (epoll->count == epoll->room) {
        size_t room = epoll->room ? 2 * epoll->room : 16;
        struct item *items = realloc(epoll->items, room * sizeof(*items));
        if (items)
            epoll->items = items;
        struct pollfd *fds = realloc(epoll->fds, room * sizeof(*fds));
        if (fds)
            epoll->fds = fds;
        uint32_t *fd_item = realloc(epoll->fd_item, room * sizeof(*fd_item));
        if (fd_item)
            epoll->fd_item = fd_item;
        if (!items || !fds || !fd_item) {
            errno = ENOMEM;
            return -1;
        }
        epoll->room = room;
    }
    bool in_kernel = !sw_way_is_rdma(sw_sock_way(sock));
    if (epoll->wake < 0 && make_wake(epoll, epfd))
        return -1;
    if (in_kernel && SW_REAL(epoll_ctl)(epfd, EPOLL_CTL_ADD, fd, event))
        return -1;
    epoll->items[epoll->count++] = (struct item){.sock = sock,
                                                 .fd = fd,
                                                 .events = event->events,
                                                 .data = event->data,
                                                 .in_kernel = in_kernel,
                                                 .at = -1};
    struct item *item = &epoll->items[epoll->count - 1];
    if (is_connection(item)) {
        append_connection(epoll, item);
        publish_count(epoll);
    } else {
        rebuild_set(epoll);
    }
    return 0;
}

static int control_item(struct sw_epoll *epoll, int epfd, int op, struct sw_sock *sock, int fd,
                        struct epoll_event *event)
{
    struct item *item = find_item(epoll, sock, fd);
    if (!item && (op != EPOLL_CTL_ADD || sw_sock_way(sock) == SW_WAY_TCP))
        return SW_REAL(epoll_ctl)(epfd, op, fd, event);
    if (op == EPOLL_CTL_ADD && item) {
        errno = EEXIST;
        return -1;
    }
    if (op == EPOLL_CTL_ADD)
        return item_add(epoll, epfd, sock, fd, event);
    int result = item->in_kernel ? SW_REAL(epoll_ctl)(epfd, op, fd, event) : 0;
    bool was_connection = is_connection(item) && item->at >= 0;
    if (result == 0 && op == EPOLL_CTL_DEL) {
        if (was_connection)
            take_out_connection(epoll, item);
        item_remove(epoll, item);
    } else if (result == 0) {
        *item = (struct item){.sock = sock,
                              .fd = fd,
                              .events = event->events,
                              .data = event->data,
                              .in_kernel = item->in_kernel,
                              .at = item->at};
        if (was_connection)
            epoll->fds[item->at].events = poll_events(item->events);
    }
    if (was_connection)
        publish_count(epoll);
    else
        rebuild_set(epoll);
    return result;
}

int sw_epoll_control(struct sw_epoll *epoll, int op, struct sw_sock *sock, int fd,
                     struct epoll_event *event)
{
    if (op != EPOLL_CTL_DEL && !event) {
        errno = EFAULT;
        return -1;
    }
    if (op == EPOLL_CTL_ADD)
        sw_meet_use(sock, fd);
    pthread_mutex_lock(&epoll->lock);
    int result = control_item(epoll, epoll->epfd, op, sock, fd, event);
    if (result == 0 && sw_epoll_has_rdma(epoll))
        wake_waiters(epoll);
    pthread_mutex_unlock(&epoll->lock);
    return result;
}

static void each_with(struct sw_sock *sock, bool is_gone)
{
    pthread_mutex_lock(&all_lock);
    for (struct sw_epoll *epoll = all; epoll; epoll = epoll->next) {
        pthread_mutex_lock(&epoll->lock);
        bool changed = false;
        struct item *item;
        while (is_gone && (item = find_item(epoll, sock, -1))) {
            item_remove(epoll, item);
            changed = true;
        }
        for (size_t i = 0; i < epoll->count; i++) {
            item = &epoll->items[i];
            if (item->sock != sock)
                continue;
            changed = true;
            if (item->in_kernel && sw_way_is_rdma(sw_sock_way(sock))) {
                SW_REAL(epoll_ctl)(epoll->epfd, EPOLL_CTL_DEL, item->fd, NULL);
                item->in_kernel = false;
            }
        }
        if (changed) {
            rebuild_set(epoll);
            wake_waiters(epoll);
        }
        pthread_mutex_unlock(&epoll->lock);
    }
    pthread_mutex_unlock(&all_lock);
}

void sw_epoll_moved(struct sw_sock *sock)
{
    each_with(sock, false);
}

void sw_epoll_forget(struct sw_sock *sock)
{
    each_with(sock, true);
}

void sw_epoll_forked(void)
{
    all_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (struct sw_epoll *epoll = all; epoll; epoll = epoll->next) {
        epoll->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        atomic_store(&epoll->rdma, 0);
        epoll->connections = epoll->listeners = epoll->lost = 0;
    }
}

/* Bytes that have not been read, counted up to `max` only. */
static size_t unread_bytes(const struct sw_sock *sock, char *copy, size_t max)
{
    ssize_t got = sw_rdma.rrecv(sw_sock_rs(sock), copy, max, MSG_PEEK | MSG_DONTWAIT);
    return got > 0 ? (size_t)got : 0;
}

/* Remembers how much had come when it was told. */
static void note_arrived(struct item *item)
{
    char few[4096];
    uint64_t received = atomic_load_explicit(&item->sock->received, memory_order_relaxed);
    size_t more = unread_bytes(item->sock, few, sizeof(few));
    item->arrived = received + more;
    item->arrived_known = more < sizeof(few);
}

/* Whether more has come since, although not all was read. Where it was not known how much there
 * was, it is told once too often rather than never. */
static bool has_grown(struct item *item)
{
    enum { ALL = 1 << 20 };
    char few[4096];
    uint64_t received = atomic_load_explicit(&item->sock->received, memory_order_relaxed);
    uint64_t now = received + unread_bytes(item->sock, few, sizeof(few));
    if (item->arrived_known && now - received < sizeof(few))
        return now > item->arrived;
    char *many = malloc(ALL);
    if (!many)
        return true;
    now = received + unread_bytes(item->sock, many, ALL);
    free(many);
    bool grown = !item->arrived_known || now > item->arrived;
    item->arrived = now;
    item->arrived_known = true;
    return grown;
}

/* Of what is ready, what is to be told to an edge-triggered program. */
static uint32_t new_edges(struct item *item, uint32_t ready)
{
    unsigned drained = atomic_load_explicit(&item->sock->drained, memory_order_relaxed);
    unsigned blocked = atomic_load_explicit(&item->sock->blocked, memory_order_relaxed);
    uint32_t ends = ready & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    bool edge = ends & ~item->end_told;
    if (ready & EPOLLIN && (!item->in_told || drained != item->drained || has_grown(item))) {
        edge = item->in_told = true;
        item->drained = drained;
        note_arrived(item);
    }
    if (ready & EPOLLOUT && (!item->out_told || blocked != item->blocked)) {
        edge = item->out_told = true;
        item->blocked = blocked;
    }
    item->end_told |= ends;
    return edge ? ready : 0;
}

static uint32_t judge_item(struct item *item, short shown)
{
    uint32_t wanted = item->events & ~(uint32_t)FLAGS;
    uint32_t ready = (uint16_t)sw_wait_translate(item->sock, shown, (short)wanted);
    if (ready && item->events & EPOLLET)
        ready = new_edges(item, ready);
    item->dead = ((shown & (POLLHUP | POLLERR)) || atomic_load(&item->sock->ended)) && !ready;
    return ready;
}

static size_t tell_item(struct sw_epoll *epoll, struct item *item, short shown,
                        struct epoll_event *out, bool *respent)
{
    (void)epoll;
    uint32_t ready = judge_item(item, shown);
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
                found += tell_item(epoll, &epoll->items[fd_item[at]], fds[at].revents, out + found,
                                   &respent);
            at = at + 1 < count ? at + 1 : 0;
        }
        epoll->turn = at;
    }
    for (size_t i = 0; epoll->lost && i < epoll->count && found < max; i++)
        if (sw_sock_way(epoll->items[i].sock) == SW_WAY_LOST && !epoll->items[i].spent)
            found += tell_item(epoll, &epoll->items[i], 0, out + found, &respent);
    if (respent)
        rebuild_set(epoll);
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
        struct item *item = &epoll->items[epoll->fd_item[i]];
        if (!(fds[i].revents & POLLIN) || !(item->events & EPOLLIN))
            continue;
        out[found++] = (struct epoll_event){.events = EPOLLIN, .data = item->data};
        if (item->events & EPOLLONESHOT)
            item->spent = respent = true;
    }
    if (respent)
        rebuild_set(epoll);
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
        struct item *item = &epoll->items[epoll->fd_item[i]];
        if (item->dead)
            continue;
        fds[count] = epoll->fds[i];
        if (item->events & EPOLLET && i >= epoll->listeners) {
            if (item->in_told && item->drained == atomic_load(&item->sock->drained)) {
                fds[count].events &= ~POLLIN;
                limit_ns = limit_ns < soon_ns ? limit_ns : soon_ns;
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

static int ask_kernel(struct sw_epoll *epoll, int epfd, struct epoll_event *out, int max)
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
    int count = kernel_first ? ask_kernel(epoll, epfd, out, max) : 0;
    pthread_mutex_lock(&epoll->lock);
    count += (int)look_at_items(epoll, out + count, (size_t)(max - count));
    ask = ask || (must && !count);
    if (ask) {
        epoll->kernel_asked_ns = now_ns;
        count += (int)look_listeners(epoll, out + count, (size_t)(max - count));
    }
    pthread_mutex_unlock(&epoll->lock);
    if (ask && !kernel_first)
        count += ask_kernel(epoll, epfd, out + count, max - count);
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
            wake_waiters(epoll);
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
            struct item *item = &epoll->items[epoll->fd_item[i]];
            uint32_t wanted = item->events & ~(uint32_t)FLAGS;
            ready = epoll->fds[i].revents &&
                    sw_wait_translate(item->sock, epoll->fds[i].revents, (short)wanted);
        }
    pthread_mutex_unlock(&epoll->lock);
    return ready;
}
