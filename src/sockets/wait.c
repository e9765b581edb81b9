/* SPDX-License-Identifier: BSD-2-Clause */
#include "sockets/wait.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <time.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/probe.h"
#include "sockets/epoll.h"
#include "sockets/meet.h"
#include "sockets/rdma.h"
#include "sockets/real.h"

enum { POLL_US = 50, POLL_US_MAX = 1000000 };
enum { FEW = 32 };                                        /* descriptors that need no malloc */
#define FDS_MAX ((nfds_t)SW_TABLE_LEAF * SW_TABLE_LEAVES) /* the table has no more */

uint64_t sw_wait_poll_ns(void)
{
    static _Atomic uint64_t known = SW_FOREVER;
    uint64_t ns = atomic_load_explicit(&known, memory_order_relaxed);
    if (ns != SW_FOREVER)
        return ns;
    const char *wanted = getenv("SIDEWIRE_SOCKETS_POLL_US");
    char *end = NULL;
    long us = wanted && *wanted ? strtol(wanted, &end, 10) : POLL_US;
    if (end && (*end || us < 0 || us > POLL_US_MAX)) {
        sw_warn("SIDEWIRE_SOCKETS_POLL_US=%s is no number up to %d; using %d", wanted, POLL_US_MAX,
                POLL_US);
        us = POLL_US;
    }
    ns = (uint64_t)us * SW_NS_PER_US;
    atomic_store_explicit(&known, ns, memory_order_relaxed);
    return ns;
}

uint64_t sw_wait_limit_ns(int64_t timeout_ns)
{
    return timeout_ns < 0 ? SW_FOREVER : sw_clock_ns() + (uint64_t)timeout_ns;
}

static bool is_at_end(int rs)
{
    char byte;
    return sw_rdma.rrecv(rs, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* An rsocket that the peer has closed hangs up; TCP does so only when this side is closed, too. */
short sw_wait_translate(struct sw_sock *sock, short shown, short wanted)
{
    int out = 0;
    int rs = sw_sock_rs(sock);
    bool shut_rd = atomic_load_explicit(&sock->shut_rd, memory_order_relaxed);
    bool shut_wr = atomic_load_explicit(&sock->shut_wr, memory_order_relaxed);
    if (rs < 0)
        return (short)((POLLIN | POLLOUT | POLLERR | POLLHUP) & (wanted | POLLERR | POLLHUP));
    if (atomic_load_explicit(&sock->ended, memory_order_relaxed))
        shown |= POLLHUP;
    if (shown & POLLIN)
        out |= POLLIN | POLLRDNORM;
    if (shown & POLLOUT || shut_wr)
        out |= POLLOUT | POLLWRNORM;
    if (shown & POLLERR)
        out |= POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLRDHUP | POLLHUP |
               (atomic_load(&sock->told_error) ? 0 : POLLERR);
    else if (shown & POLLHUP)
        out |= POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLRDHUP | (shut_wr ? POLLHUP : 0);
    else if (shut_rd)
        out |= POLLIN | POLLRDNORM | POLLRDHUP | (shut_wr ? POLLHUP : 0);
    else if ((shown & POLLIN) && (wanted & POLLRDHUP || shut_wr) && is_at_end(rs))
        out |= POLLRDHUP | (shut_wr ? POLLHUP : 0);
    return (short)(out & (wanted | POLLERR | POLLHUP));
}

/* rpoll of librdmacm 44 does not count its threads right once it has run into its timeout, and then
 * never sleeps again. So it is given none: each thread has a timer among its descriptors. */
static pthread_key_t timer_key;
static pthread_once_t timer_once = PTHREAD_ONCE_INIT;
static atomic_uint timer_life = 1; /* of this process: fork() would share the parent's */

struct timer {
    int fd;
    unsigned life;
};

static void timer_end(void *memory)
{
    struct timer *timer = memory;
    if (timer->fd >= 0)
        SW_REAL(close)(timer->fd);
    free(timer);
}

static void timer_key_make(void)
{
    pthread_key_create(&timer_key, timer_end);
}

void sw_wait_forked(void)
{
    atomic_fetch_add(&timer_life, 1);
}

static int timer_set(uint64_t limit_ns)
{
    pthread_once(&timer_once, timer_key_make);
    struct timer *timer = pthread_getspecific(timer_key);
    if (!timer) {
        timer = malloc(sizeof(*timer));
        if (!timer || pthread_setspecific(timer_key, timer)) {
            free(timer);
            return -1;
        }
        *timer = (struct timer){.fd = -1};
    }
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(limit_ns / SW_NS_PER_S),
                                           .tv_nsec = (long)(limit_ns % SW_NS_PER_S)}};
    bool is_set = timer->fd >= 0 && timer->life == atomic_load(&timer_life) &&
                  timerfd_settime(timer->fd, TFD_TIMER_ABSTIME, &when, NULL) == 0;
    if (!is_set) { /* the first time, after fork(), or the program has closed it */
        timer->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        timer->life = atomic_load(&timer_life);
        if (timer->fd < 0 || timerfd_settime(timer->fd, TFD_TIMER_ABSTIME, &when, NULL))
            return -1;
    }
    return timer->fd;
}

/* This thread is in poll() of librdmacm's, which wants of the program's descriptors what the kernel
 * has to say of them. */
static __thread bool asleep __attribute__((tls_model("initial-exec")));

int sw_wait_sleep(struct pollfd *fds, size_t count, uint64_t limit_ns)
{
    if (limit_ns != SW_FOREVER) {
        int timer = timer_set(limit_ns);
        if (timer < 0) {
            SW_REAL(poll)(NULL, 0, 1);
            return 0;
        }
        fds[count++] = (struct pollfd){.fd = timer, .events = POLLIN};
    }
    asleep = true;
    int failed = sw_rdma.rpoll(fds, count, -1) < 0 && errno == EINTR ? -EINTR : 0;
    asleep = false;
    return failed;
}

void sw_wait_note_channel(struct sw_sock *sock, short shown)
{
    if ((shown & (POLLIN | POLLHUP | POLLERR)) && !atomic_exchange(&sock->ended, true))
        atomic_fetch_add(&sw_sock_ended, 1);
}

void sw_wait_look_channel(struct sw_sock *sock)
{
    struct pollfd one = {.fd = atomic_load(&sock->channel), .events = POLLIN};
    if (one.fd >= 0 && SW_REAL(poll)(&one, 1, 0) > 0)
        sw_wait_note_channel(sock, one.revents);
}

int sw_wait_one(struct sw_sock *sock, short events, uint64_t limit_ns)
{
    struct pollfd two[3] = {{.fd = sw_sock_rs(sock), .events = events},
                            {.fd = atomic_load(&sock->channel), .events = POLLIN}};
    size_t count = two[1].fd >= 0 ? 2 : 1;
    uint64_t poll_until_ns = sw_clock_ns() + sw_wait_poll_ns();
    for (;;) {
        if (sw_rdma.rpoll(two, 1, 0) > 0 || atomic_load(&sock->ended))
            return 0;
        uint64_t now_ns = sw_clock_ns();
        if (now_ns >= limit_ns)
            return -EAGAIN;
        two[1].revents = 0;
        if (now_ns < poll_until_ns)
            sw_cpu_relax();
        else if (sw_wait_sleep(two, count, limit_ns))
            return -EINTR;
        sw_wait_note_channel(sock, two[1].revents);
    }
}

/* An array that cannot be read is for the kernel to refuse. A program polls the same array over and
 * over: the kernel is asked about it once. */
static bool wait_is_readable(const struct pollfd *fds, nfds_t count)
{
    static __thread const struct pollfd *known;
    static __thread nfds_t known_count;
    if (__builtin_expect(fds == known && count <= known_count, 1))
        return true;
    if (count > FDS_MAX || !sw_probe_bytes(fds, count * sizeof(*fds)))
        return false;
    known = fds;
    known_count = count;
    return true;
}

bool sw_wait_concerns(struct pollfd *fds, nfds_t count)
{
    if (asleep || !wait_is_readable(fds, count))
        return false;
    for (nfds_t i = 0; i < count; i++) {
        struct sw_file *file = fds[i].fd < 0 ? NULL : sw_table_peek(fds[i].fd);
        if (__builtin_expect(!file, 1))
            continue;
        if (file->kind == SW_KIND_EPOLL ? sw_epoll_has_rdma((struct sw_epoll *)file)
                                        : sw_sock_way((struct sw_sock *)file) == SW_WAY_LISTEN ||
                                              sw_way_is_rdma(sw_sock_way((struct sw_sock *)file)))
            return true;
    }
    return false;
}

/* A call of poll(): for each of the program's descriptors the kernel's part and the rsocket's. */
struct set {
    struct pollfd *user;
    size_t count;
    struct sw_file **files; /* references; NULL: only the kernel's */
    struct pollfd *kernel;  /* as the user's, fd -1 where the kernel has no part */
    struct pollfd *rs;      /* without gaps */
    size_t *rs_user;
    size_t rs_count;
    struct pollfd *sleep; /* what to sleep for */
    bool *dead;           /* nothing that is asked for will come */
};

static void set_fill(struct set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        int fd = set->user[i].fd;
        set->kernel[i] = set->user[i];
        set->dead[i] = false;
        set->files[i] = NULL;
        struct sw_sock *sock = fd < 0 ? NULL : sw_sock_get(fd);
        if (!sock) {
            set->files[i] = fd < 0 ? NULL : sw_table_take(fd, SW_KIND_EPOLL);
            continue;
        }
        set->files[i] = &sock->file;
        sw_meet_use(sock, fd);
        bool is_rdma = sw_way_is_rdma(sw_sock_way(sock));
        if (is_rdma)
            set->kernel[i].fd = -1;
        if (sw_sock_rs(sock) >= 0 && (is_rdma || sw_sock_way(sock) == SW_WAY_LISTEN)) {
            set->rs[set->rs_count] =
                (struct pollfd){.fd = sw_sock_wait_fd(sock),
                                .events = (short)(set->user[i].events & (POLLIN | POLLOUT))};
            if (set->user[i].events & (POLLRDNORM | POLLRDHUP))
                set->rs[set->rs_count].events |= POLLIN;
            if (set->user[i].events & POLLWRNORM)
                set->rs[set->rs_count].events |= POLLOUT;
            set->rs_user[set->rs_count++] = i;
        }
    }
}

/* Looks at all once; returns how many are ready. */
static int set_look(struct set *set)
{
    int ready = SW_REAL(poll)(set->kernel, set->count, 0);
    if (ready < 0)
        return ready;
    for (size_t i = 0; i < set->count; i++) {
        struct pollfd *user = &set->user[i];
        struct sw_file *file = set->files[i];
        user->revents = set->kernel[i].fd < 0 ? 0 : set->kernel[i].revents;
        if (file && file->kind == SW_KIND_EPOLL && sw_epoll_is_ready((struct sw_epoll *)file))
            user->revents |= (short)(user->events & (POLLIN | POLLRDNORM));
        else if (file && file->kind == SW_KIND_SOCK && sw_sock_way((void *)file) == SW_WAY_LOST)
            user->revents |= sw_wait_translate((struct sw_sock *)file, 0, user->events);
    }
    if (set->rs_count)
        sw_rdma.rpoll(set->rs, set->rs_count, 0);
    for (size_t j = 0; j < set->rs_count; j++) {
        size_t i = set->rs_user[j];
        struct sw_sock *sock = (struct sw_sock *)set->files[i];
        short shown = set->rs[j].revents;
        if (sw_sock_way(sock) == SW_WAY_LISTEN)
            set->user[i].revents |= shown;
        else
            set->user[i].revents |= sw_wait_translate(sock, shown, set->user[i].events);
        set->dead[i] =
            ((shown & (POLLHUP | POLLERR)) || atomic_load(&sock->ended)) && !set->user[i].revents;
    }
    ready = 0;
    for (size_t i = 0; i < set->count; i++)
        ready += set->user[i].revents != 0;
    return ready;
}

/* The channel to watch of the connection with this rsocket, -1: none. */
static int wait_channel_of(const struct set *set, size_t j)
{
    const struct sw_sock *sock = (const struct sw_sock *)set->files[set->rs_user[j]];
    return set->dead[set->rs_user[j]] || atomic_load(&sock->ended) ? -1
                                                                   : atomic_load(&sock->channel);
}

/* rpoll takes no negative descriptors. */
static int set_sleep(struct set *set, uint64_t limit_ns)
{
    size_t count = 0;
    for (size_t i = 0; i < set->count; i++) {
        if (set->kernel[i].fd >= 0)
            set->sleep[count++] = set->kernel[i];
        if (set->files[i] && set->files[i]->kind == SW_KIND_EPOLL) {
            uint64_t soon_ns = sw_clock_ns() + 10 * SW_NS_PER_MS;
            if (sw_epoll_has_rdma((struct sw_epoll *)set->files[i]) && soon_ns < limit_ns)
                limit_ns = soon_ns;
        }
    }
    for (size_t j = 0; j < set->rs_count; j++)
        if (!set->dead[set->rs_user[j]])
            set->sleep[count++] = set->rs[j];
    size_t channels = count;
    for (size_t j = 0; j < set->rs_count; j++) {
        int channel = wait_channel_of(set, j);
        if (channel >= 0)
            set->sleep[count++] = (struct pollfd){.fd = channel, .events = POLLIN};
    }
    int failed = sw_wait_sleep(set->sleep, count, limit_ns);
    for (size_t j = 0; !failed && j < set->rs_count; j++)
        if (wait_channel_of(set, j) >= 0 && set->sleep[channels].fd == wait_channel_of(set, j))
            sw_wait_note_channel((struct sw_sock *)set->files[set->rs_user[j]],
                                 set->sleep[channels++].revents);
    return failed;
}

static int set_wait(struct set *set, uint64_t limit_ns)
{
    uint64_t poll_until_ns = sw_clock_ns() + sw_wait_poll_ns();
    for (;;) {
        int ready = set_look(set);
        if (ready)
            return ready;
        uint64_t now_ns = sw_clock_ns();
        if (now_ns >= limit_ns)
            return 0;
        if (now_ns < poll_until_ns) {
            sw_cpu_relax();
        } else if (set_sleep(set, limit_ns)) {
            errno = EINTR;
            return -1;
        }
    }
}

int sw_wait_poll(struct pollfd *fds, nfds_t count, uint64_t limit_ns)
{
    /* Slept for: the kernel's part, the rsocket and its channel of each; and the timer. */
    enum { EACH = 5 * sizeof(struct pollfd) + 2 * sizeof(void *) + sizeof(bool) };
    _Alignas(16) char few[FEW * EACH + sizeof(struct pollfd)];
    char *memory = count <= FEW ? few : malloc(count * EACH + sizeof(struct pollfd));
    if (!memory) {
        errno = ENOMEM;
        return -1;
    }
    struct set set = {.user = fds, .count = count, .files = (void *)memory};
    set.rs_user = (size_t *)(set.files + count);
    set.kernel = (struct pollfd *)(set.rs_user + count);
    set.rs = set.kernel + count;
    set.sleep = set.rs + count;
    set.dead = (bool *)(set.sleep + 3 * count + 1);
    set_fill(&set);
    int result = set_wait(&set, limit_ns);
    int saved_errno = errno;
    for (size_t i = 0; i < count; i++)
        if (set.files[i])
            sw_file_put(set.files[i]);
    if (memory != few)
        free(memory);
    errno = saved_errno;
    return result;
}
