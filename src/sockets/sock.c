/* SPDX-License-Identifier: BSD-2-Clause */
#include "sockets/sock.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/held_signals.h"
#include "base/log.h"
#include "sockets/epoll.h"
#include "sockets/peers.h"
#include "sockets/rdma.h"
#include "sockets/real.h"
#include "sockets/wait.h"
#include "sockets/way.h"

sw_table_leaf *_Atomic sw_table[SW_TABLE_LEAVES];

atomic_int sw_sock_ended;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of changes to the table */
static struct sw_sock *free_socks;
static pid_t owner;

enum sw_reach sw_sockets_reach(void)
{
    static atomic_int reach = -1;
    int known = atomic_load_explicit(&reach, memory_order_relaxed);
    if (known >= 0)
        return (enum sw_reach)known;
    const char *wanted = getenv("SIDEWIRE_SOCKETS");
    known = SW_REACH_HOST;
    if (wanted && !strcmp(wanted, "tcp"))
        known = SW_REACH_NOBODY;
    else if (wanted && !strcmp(wanted, "hosts"))
        known = SW_REACH_HOSTS;
    else if (wanted && *wanted && strcmp(wanted, "auto"))
        sw_warn("SIDEWIRE_SOCKETS=%s is not auto, hosts or tcp; using auto", wanted);
    atomic_store_explicit(&reach, known, memory_order_relaxed);
    return (enum sw_reach)known;
}

bool sw_table_is_foreign(void)
{
    return owner && owner != getpid();
}

/* Takes a reference, unless the last one is gone. */
static bool take_reference(struct sw_file *file)
{
    int refs = atomic_load_explicit(&file->refs, memory_order_relaxed);
    while (refs > 0)
        if (atomic_compare_exchange_weak_explicit(&file->refs, &refs, refs + 1,
                                                  memory_order_acquire, memory_order_relaxed))
            return true;
    return false;
}

struct sw_file *sw_table_take(int fd, enum sw_kind kind)
{
    for (;;) {
        struct sw_file *file = sw_table_peek(fd);
        if (!file || file->kind != kind)
            return NULL;
        if (take_reference(file)) {
            if (sw_table_peek(fd) == file)
                return file;
            sw_file_put(file);
        } else if (sw_table_peek(fd) == file) {
            return NULL;
        }
    }
}

struct sw_sock *sw_sock_take(int fd, struct sw_file *seen)
{
    if (take_reference(seen)) {
        if (__builtin_expect(sw_table_peek(fd) == seen, 1))
            return (struct sw_sock *)seen;
        sw_file_put(seen);
    }
    return (struct sw_sock *)sw_table_take(fd, SW_KIND_SOCK);
}

static void sock_end(struct sw_sock *sock)
{
    int rs = atomic_exchange(&sock->rs, -1);
    if (rs >= 0) {
        sigset_t old;
        sw_rdma_mask(&old);
        sw_rdma.rclose(rs);
        sw_rdma_unmask(&old);
    }
    if (atomic_load(&sock->ended))
        atomic_fetch_sub(&sw_sock_ended, 1);
    int channel = atomic_exchange(&sock->channel, -1);
    if (channel >= 0)
        SW_REAL(close)(channel);
    sw_way_forget(sock);
    pthread_mutex_lock(&lock);
    sock->next_free = free_socks;
    free_socks = sock;
    pthread_mutex_unlock(&lock);
}

void sw_file_put(struct sw_file *file)
{
    if (__builtin_expect(atomic_fetch_sub_explicit(&file->refs, 1, memory_order_acq_rel) != 1, 1))
        return;
    int saved_errno = errno;
    if (file->kind == SW_KIND_SOCK)
        sock_end((struct sw_sock *)file);
    else
        sw_epoll_end((struct sw_epoll *)file);
    errno = saved_errno;
}

/* Under the lock. NULL: the number is beyond the table, or no memory. */
static struct sw_file *_Atomic *sock_place_of(int fd)
{
    if ((unsigned)fd >= SW_TABLE_LEAF * SW_TABLE_LEAVES)
        return NULL;
    sw_table_leaf *_Atomic *leaf = &sw_table[fd / SW_TABLE_LEAF];
    if (!atomic_load_explicit(leaf, memory_order_relaxed)) {
        sw_table_leaf *made = calloc(1, sizeof(*made));
        if (!made)
            return NULL;
        atomic_store_explicit(leaf, made, memory_order_release);
    }
    return &(**leaf)[fd % SW_TABLE_LEAF];
}

void sw_table_set(int fd, struct sw_file *file)
{
    pthread_mutex_lock(&lock);
    if (!owner)
        owner = getpid();
    struct sw_file *_Atomic *place = sock_place_of(fd);
    if (place) {
        file->fds++;
        atomic_fetch_add_explicit(&file->refs, 1, memory_order_relaxed);
        atomic_store_explicit(place, file, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
}

struct sw_sock *sw_sock_new(int fd, int domain, bool nonblock)
{
    sw_table_clear(fd); /* closed unseen: libc closes some by itself */
    pthread_mutex_lock(&lock);
    struct sw_sock *sock = free_socks;
    if (sock)
        free_socks = sock->next_free;
    pthread_mutex_unlock(&lock);
    if (!sock && !(sock = malloc(sizeof(*sock))))
        return NULL;
    *sock = (struct sw_sock){.file = {.kind = SW_KIND_SOCK},
                             .rs = -1,
                             .queue = -1,
                             .channel = -1,
                             .domain = domain,
                             .nonblock = nonblock,
                             .lock = PTHREAD_MUTEX_INITIALIZER,
                             .record = -1};
    atomic_store_explicit(&sock->file.refs, 1, memory_order_relaxed);
    sw_table_set(fd, &sock->file);
    return sock;
}

void sw_table_clear(int fd)
{
    if (__builtin_expect(!sw_table_peek(fd), 1) || sw_table_is_foreign())
        return;
    pthread_mutex_lock(&lock);
    struct sw_file *_Atomic *place = sock_place_of(fd);
    struct sw_file *file = place ? atomic_exchange(place, NULL) : NULL;
    bool is_last = file && --file->fds == 0;
    pthread_mutex_unlock(&lock);
    if (!file)
        return;
    int saved_errno = errno;
    if (is_last && file->kind == SW_KIND_SOCK) {
        struct sw_sock *sock = (struct sw_sock *)file;
        sw_epoll_forget(sock);
        sw_peers_end(sock, fd);
        /* Another thread is inside a call: it sees the end, and closes. */
        if (sw_way_is_rdma(sw_sock_way(sock)) && sw_sock_rs(sock) >= 0 &&
            atomic_load(&file->refs) > 1)
            sw_rdma.rshutdown(sw_sock_rs(sock), SHUT_RDWR);
    }
    sw_file_put(file);
    errno = saved_errno;
}

void sw_table_clear_range(unsigned first, unsigned last)
{
    for (unsigned i = first / SW_TABLE_LEAF; i < SW_TABLE_LEAVES && i <= last / SW_TABLE_LEAF; i++)
        for (unsigned j = 0; atomic_load(&sw_table[i]) && j < SW_TABLE_LEAF; j++)
            if (i * SW_TABLE_LEAF + j >= first && i * SW_TABLE_LEAF + j <= last)
                sw_table_clear((int)(i * SW_TABLE_LEAF + j));
}

/* Calls `act` for each socket in the table. */
static void each_sock(void (*act)(struct sw_sock *sock))
{
    for (int i = 0; i < SW_TABLE_LEAVES; i++)
        for (int j = 0; atomic_load(&sw_table[i]) && j < SW_TABLE_LEAF; j++) {
            struct sw_file *file = sw_table_peek(i * SW_TABLE_LEAF + j);
            if (file && file->kind == SW_KIND_SOCK)
                act((struct sw_sock *)file);
        }
}

static int listeners; /* counted by the one caller, under the lock */

static void count_listener(struct sw_sock *sock)
{
    listeners += sw_sock_way(sock) == SW_WAY_LISTEN && sw_sock_rs(sock) >= 0;
}

int sw_sock_listeners(void)
{
    pthread_mutex_lock(&lock);
    listeners = 0;
    each_sock(count_listener);
    int count = listeners;
    pthread_mutex_unlock(&lock);
    return count;
}

/* A server that forks before it has waited for clients leaves that to its child: it must not hold
 * the RDMA side of the listener, as nobody else can have it then. */
static void sock_give_up(struct sw_sock *sock)
{
    if (sw_sock_way(sock) != SW_WAY_LISTEN || sock->used || sw_sock_rs(sock) < 0)
        return;
    pthread_mutex_lock(&sock->lock);
    int rs = atomic_exchange(&sock->rs, -1);
    atomic_store(&sock->queue, -1);
    if (rs >= 0)
        sw_rdma.rclose(rs);
    sock->relisten = true;
    pthread_mutex_unlock(&sock->lock);
}

void sw_sock_before_fork(void)
{
    if (owner == getpid())
        each_sock(sock_give_up);
}

static void inherit_sock(struct sw_sock *sock)
{
    sock->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    atomic_store(&sock->rs, -1);
    atomic_store(&sock->queue, -1);
    atomic_store(&sock->channel, -1);
    sock->record = -1;
    sock->used = false;
    if (sw_sock_way(sock) == SW_WAY_LISTEN)
        sock->relisten = true;
    else if (sw_way_is_rdma(sw_sock_way(sock)))
        atomic_store(&sock->way, SW_WAY_LOST);
}

static sigset_t mask_before_fork; /* under the lock */

static void sock_fork_prepare(void)
{
    sigset_t mask;
    sw_signals_hold(&mask);
    pthread_mutex_lock(&lock);
    mask_before_fork = mask;
}

static void sock_fork_parent(void)
{
    const sigset_t mask = mask_before_fork;
    pthread_mutex_unlock(&lock);
    sw_signals_let_go_held(&mask);
}

static void sock_renew_in_child(void)
{
    owner = getpid();
    sw_rdma_forked();
    sw_way_forked();
    sw_peers_forked();
    sw_epoll_forked();
    sw_wait_forked();
    each_sock(inherit_sock);
}

static void sock_fork_child(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (owner)
        sock_renew_in_child();
    sw_signals_let_go_held(&mask_before_fork);
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(sock_fork_prepare, sock_fork_parent, sock_fork_child);
}
