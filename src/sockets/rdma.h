/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rsockets of the stock librdmacm, and nothing else of it. The library is loaded when a program
 * first listens or connects. Its service threads do not survive fork() while it believes that they
 * run, so a child of a process that has used it loads a copy of its own.
 */
#ifndef SW_SOCKETS_RDMA_H
#define SW_SOCKETS_RDMA_H

#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/uio.h>

struct sw_rdma {
    int (*rsocket)(int domain, int type, int protocol);
    int (*rbind)(int rs, const struct sockaddr *address, socklen_t len);
    int (*rlisten)(int rs, int backlog);
    int (*raccept)(int rs, struct sockaddr *address, socklen_t *len);
    int (*rconnect)(int rs, const struct sockaddr *address, socklen_t len);
    int (*rshutdown)(int rs, int how);
    int (*rclose)(int rs);
    ssize_t (*rrecv)(int rs, void *out, size_t len, int flags);
    ssize_t (*rsend)(int rs, const void *bytes, size_t len, int flags);
    ssize_t (*rsendmsg)(int rs, const struct msghdr *message, int flags);
    int (*rpoll)(struct pollfd *fds, nfds_t count, int timeout_ms);
    int (*rgetpeername)(int rs, struct sockaddr *address, socklen_t *len);
    int (*rgetsockname)(int rs, struct sockaddr *address, socklen_t *len);
    int (*rsetsockopt)(int rs, int level, int name, const void *value, socklen_t len);
    int (*rgetsockopt)(int rs, int level, int name, void *value, socklen_t *len);
    int (*rfcntl)(int rs, int cmd, ...);
};

/* All NULL until sw_rdma_load() has returned NULL: the owner of an rsocket may use it. */
extern struct sw_rdma sw_rdma;

/* Returns NULL, or why there are no rsockets in this process. */
const char *sw_rdma_load(void);

/* rlisten(). rpoll of librdmacm 44 sleeps at a listener's channel, which its own thread reads
 * before there is anything to accept, so it would miss it. The clients are queued in a pair of
 * sockets made inside of this call: `*queue` is the end that becomes readable, -1 if there was
 * none. */
int sw_rdma_listen(int rs, int backlog, int *queue);
void sw_rdma_saw_pair(const int fds[2]);

/* rconnect() and raccept(). librdmacm 44 hands each connection to a thread that watches its events,
 * and that thread uses memory it has freed from the fourth connection on. So it is handed none: a
 * thread that waits for a connection watches the channel itself (sw_sock.channel). */
int sw_rdma_connect(int rs, const struct sockaddr *address, socklen_t len);
int sw_rdma_accept(int listener);
/* The same thread serves listeners, as many as that. */
enum { SW_RDMA_LISTENERS_MAX = 3 };

/* Whether this thread is inside of these calls, and what its write() to a thread of librdmacm is
 * then. */
extern __thread bool sw_rdma_is_meeting __attribute__((tls_model("initial-exec")));
ssize_t sw_rdma_write(int fd, const void *bytes, size_t len);

/* librdmacm makes threads inside some calls: no signal of the program's may reach them. */
void sw_rdma_mask(sigset_t *old);
void sw_rdma_unmask(const sigset_t *old);

/* The child of fork(): what was loaded belongs to the parent. */
void sw_rdma_forked(void);

#endif
