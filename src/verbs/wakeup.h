/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The descriptor of an event queue: an eventfd that counts the events queued, so poll, epoll (level
 * and edge) and a blocking read behave as with the kernel's event files. A read that blocks is
 * restarted after a signal handler with SA_RESTART, which programs rely on (perftest's duration
 * mode takes SIGALRM while it waits for an event).
 */
#ifndef SW_VERBS_WAKEUP_H
#define SW_VERBS_WAKEUP_H

/* Returns a close-on-exec descriptor, or -1 with errno. */
int sw_wakeup_open(void);

/* Counts one event more. Never blocks. */
void sw_wakeup_add(int fd);

/* Waits for an event and counts one less; with O_NONBLOCK set by the program it fails with EAGAIN
 * instead. 0, or -1 with errno. */
int sw_wakeup_take(int fd);

/* Counts up to `count` events less, without ever waiting: for events that leave the queue unread. A
 * count that a concurrent sw_wakeup_take() has already taken is left out; that caller finds the
 * queue empty and waits again. */
void sw_wakeup_retract(int fd, unsigned int count);

#endif
