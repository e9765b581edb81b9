/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of descriptors this library knows: TCP sockets, and epoll sets. Behind a descriptor
 * there is always the kernel's object of the same kind, which keeps the number, the flags and the
 * options; a connection by RDMA has an rsocket besides, and its TCP socket stays unconnected.
 *
 * A lookup takes no lock. Objects are counted: each descriptor is a reference, and so is each call
 * that is going on, so that a close() in another thread takes nothing away from under it. Memory of
 * sockets is used again for sockets only, so a stale pointer can be looked at.
 */
#ifndef SW_SOCKETS_SOCK_H
#define SW_SOCKETS_SOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "sockets/published.h"

enum sw_kind { SW_KIND_SOCK, SW_KIND_EPOLL };

struct sw_file {
    enum sw_kind kind;
    atomic_int refs;
    int fds; /* under the table's lock */
};

struct sw_sock {
    struct sw_file file;
    atomic_int way;   /* enum sw_way */
    atomic_int rs;    /* the rsocket, -1: none */
    atomic_int queue; /* of a listener: readable when a client waits, -1: unknown */
    /* For a connection by RDMA: another descriptor of its channel, which is readable once the peer
     * has disconnected or died, and stays so. */
    atomic_int channel;
    atomic_bool ended;
    int domain;
    pthread_mutex_t lock; /* of connect, listen and what they change */
    atomic_bool nonblock;
    atomic_bool shut_wr, shut_rd;
    atomic_bool connecting; /* a non-blocking connect() that is done, and was not asked about */
    atomic_bool told_error; /* the end by a fault was reported once */
    bool relisten;          /* a listener whose rsocket was given up before fork() */
    bool used;              /* a listener that this process has waited at */
    int backlog;
    int turn; /* accept() asks both ways in turn */
    /* Edges of epoll: how often a receive found nothing more, a send no room. */
    atomic_uint drained, blocked;
    _Atomic uint64_t received;                    /* bytes */
    uint64_t receive_timeout_ns, send_timeout_ns; /* 0: none */
    unsigned idle;                                /* receives that found nothing */
    atomic_size_t epoll_place;                    /* a guess */
    atomic_uint messages;                         /* moved by RDMA, both ways, about */
    union sw_address asked;                       /* connect() was for there, ... */
    uint64_t asked_ns;                            /* ... then; 0: accepted, or never RDMA's */
    int record;                                   /* in what is published, -1: none */
    struct sw_sock *next_free;
};

#define SW_TABLE_LEAF 1024
#define SW_TABLE_LEAVES 1024
typedef struct sw_file *_Atomic sw_table_leaf[SW_TABLE_LEAF];
extern sw_table_leaf *_Atomic sw_table[SW_TABLE_LEAVES];

/* Without a reference: only to be compared, or asked for its kind and way. */
static inline struct sw_file *sw_table_peek(int fd)
{
    if (__builtin_expect((unsigned)fd >= SW_TABLE_LEAF * SW_TABLE_LEAVES, 0))
        return NULL;
    sw_table_leaf *leaf = atomic_load_explicit(&sw_table[fd / SW_TABLE_LEAF], memory_order_acquire);
    return __builtin_expect(!leaf, 1)
               ? NULL
               : atomic_load_explicit(&(*leaf)[fd % SW_TABLE_LEAF], memory_order_acquire);
}

static inline bool sw_way_is_rdma(int way)
{
    return way == SW_WAY_DIRECT || way == SW_WAY_ROCE || way == SW_WAY_LOST;
}

static inline int sw_sock_way(const struct sw_sock *sock)
{
    return atomic_load_explicit(&sock->way, memory_order_acquire);
}

static inline int sw_sock_rs(const struct sw_sock *sock)
{
    return atomic_load_explicit(&sock->rs, memory_order_acquire);
}

/* Two threads may count as one: it is a guess of what the connection is for. */
static inline void sw_sock_count_message(struct sw_sock *sock)
{
    unsigned count = atomic_load_explicit(&sock->messages, memory_order_relaxed);
    atomic_store_explicit(&sock->messages, count + 1, memory_order_relaxed);
}

/* What to wait for: the rsocket, or the queue of a listener. */
static inline int sw_sock_wait_fd(const struct sw_sock *sock)
{
    int rs = sw_sock_rs(sock), queue = atomic_load_explicit(&sock->queue, memory_order_acquire);
    return rs >= 0 && queue >= 0 ? queue : rs;
}

struct sw_sock *sw_sock_take(int fd, struct sw_file *seen);
struct sw_file *sw_table_take(int fd, enum sw_kind kind);

/* The socket, with a reference, or NULL if the descriptor is none of ours. */
static inline struct sw_sock *sw_sock_get(int fd)
{
    struct sw_file *file = sw_table_peek(fd);
    return __builtin_expect(!file, 1) || file->kind != SW_KIND_SOCK ? NULL : sw_sock_take(fd, file);
}

/* Only if it is connected by RDMA: all others are the kernel's. */
static inline struct sw_sock *sw_sock_get_rdma(int fd)
{
    struct sw_file *file = sw_table_peek(fd);
    if (__builtin_expect(!file, 1) || file->kind != SW_KIND_SOCK ||
        !sw_way_is_rdma(sw_sock_way((struct sw_sock *)file)))
        return NULL;
    return sw_sock_take(fd, file);
}

/* Keeps errno. The last one ends the connection. */
void sw_file_put(struct sw_file *file);
static inline void sw_sock_put(struct sw_sock *sock)
{
    sw_file_put(&sock->file);
}

/* A new socket behind `fd`, as the caller's reference and the descriptor's; NULL: no memory, and
 * the descriptor stays the kernel's. */
struct sw_sock *sw_sock_new(int fd, int domain, bool nonblock);
/* Another descriptor of a known object; what `fd` was before has been closed by the kernel. */
void sw_table_set(int fd, struct sw_file *file);
/* The descriptor is closed, or about to be. */
void sw_table_clear(int fd);
void sw_table_clear_range(unsigned first, unsigned last);
/* Whether this is the child of vfork(), whose memory is its parent's. */
bool sw_table_is_foreign(void);

/* Sockets whose `ended` is set. */
extern atomic_int sw_sock_ended;

/* How many listen by RDMA. */
int sw_sock_listeners(void);

/* fork() is about to be called: listeners nobody has waited at are left to the child. */
void sw_sock_before_fork(void);

/* The peers that connect() asks for RDMA (SIDEWIRE_SOCKETS). Listeners serve whoever comes by
 * it. */
enum sw_reach {
    SW_REACH_NOBODY, /* tcp */
    SW_REACH_HOST,   /* auto: programs on this host */
    SW_REACH_HOSTS,  /* hosts: those of others as well */
};
enum sw_reach sw_sockets_reach(void);

#endif
