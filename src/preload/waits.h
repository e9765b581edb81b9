/* SPDX-License-Identifier: BSD-2-Clause */
/* A call of the program that sleeps until a descriptor is ready, and may attend to the port
 * meanwhile (link/attend.h). */
#ifndef SW_PRELOAD_WAITS_H
#define SW_PRELOAD_WAITS_H

#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>

enum { SW_WAIT_FDS_MAX = 32 }; /* a call with more is the kernel's */

struct sw_wait {
    /* The program's call, with this mask of signals, for so long. 0: it does not sleep; UINT64_MAX:
     * for ever. Returns as the program sees it: how many are ready, 0, or -1 with errno. */
    int (*call)(struct sw_wait *wait, uint64_t ns);
    struct pollfd fds[SW_WAIT_FDS_MAX + 1]; /* what it sleeps on, with room for the port */
    nfds_t count;
    const sigset_t *mask; /* that the program asks for while it sleeps, or NULL: the thread's */
    union {
        struct pollfd *poll_fds; /* `count` */
        struct {
            struct epoll_event *events;
            int fd, room;
        } epoll;
    } of;
};

/* Waits for so long; UINT64_MAX: for ever. Returns as call(). */
int sw_wait_run(struct sw_wait *wait, uint64_t ns);

#endif
