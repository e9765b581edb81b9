/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Another thread ends a sleep. That thread sets a word, then looks whether anybody sleeps; the
 * sleeper says that it sleeps, then looks at the word. So one of the two sees the other, and only a
 * sleeper costs a system call.
 */
#ifndef SW_COLLECTIVES_WAKE_H
#define SW_COLLECTIVES_WAKE_H

#include <stdbool.h>
#include <stdint.h>

struct coll_wake {
    int fd; /* an eventfd; -1: not open */
    uint32_t is_wanted, is_asleep;
};

/* `epoll_data`: as of its events. False and errno: there is no descriptor for it. */
bool coll_wake_open(struct coll_wake *wake, int epoll_fd, void *epoll_data);
void coll_wake_close(struct coll_wake *wake);
/* Any thread. */
void coll_wake_want(struct coll_wake *wake);
/* Whether one is wanted, which is then forgotten. */
bool coll_wake_take(struct coll_wake *wake);
/* True: it may be slept, and coll_wake_sleep_end() follows. False: a wake has come before. */
bool coll_wake_sleep_begin(struct coll_wake *wake);
void coll_wake_sleep_end(struct coll_wake *wake);
/* Its descriptor has an event. */
void coll_wake_drain(struct coll_wake *wake);

#endif
