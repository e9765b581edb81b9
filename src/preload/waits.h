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
    /* The call without sleeping, and the call for so long, UINT64_MAX: for ever. As the program
     * sees it: how many are ready, 0, or -1 with errno. Signals are let through by the mask. */
    int (*look)(struct sw_wait *wait, const sigset_t *mask);
    int (*sleep)(struct sw_wait *wait, const sigset_t *mask, uint64_t ns);
    struct pollfd fds[SW_WAIT_FDS_MAX + 1]; /* what it sleeps on, with room for the port */
    nfds_t count;
    const sigset_t *mask; /* that the program asks for while it sleeps, or NULL: the thread's */
    union {
        struct {
            struct pollfd *fds;
            nfds_t count;
        } poll;
        struct {
            struct epoll_event *events;
            int epoll, room;
        } epoll;
    } of;
};

/* Waits for so long; UINT64_MAX: for ever. Returns as look(). */
int sw_wait_run(struct sw_wait *wait, uint64_t ns);

#endif
