/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that sleeps until an event takes in its packets by itself: it looks for them a while,
 * then sleeps on the port beside what it sleeps on. The engine would be woken by the packet, and
 * would wake the program in turn.
 *
 * Only a thread whose last wait was short does it: what comes seldom costs less with one sleep. And
 * only one thread: a second one would be woken for each packet of the first. Both are left to the
 * engine then.
 *
 * Nothing here is an answer to the program: that is the kernel's. A mistake here costs time, and
 * loses no event.
 */
#ifndef SW_LINK_ATTEND_H
#define SW_LINK_ATTEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Descriptors that show events of completion queues: of channels, and epoll sets that have one. A
 * number that is another file by now may still be marked. Any thread; no system call. */
extern atomic_uint sw_attend_marks; /* how many */
void sw_attend_mark(int fd);
void sw_attend_unmark(int fd);
bool sw_attend_is_marked(int fd);

/* One wait of the calling thread. */
struct sw_attend {
    uint64_t moved_ns; /* when something last came */
    uint64_t packets;  /* that had come and gone before */
    bool attends;
};

/* Whether there is a port. */
bool sw_attend_is_possible(void);
/* If so: the thread is about to sleep until an event. Returns whether it attends to the port. Ends
 * with sw_attend_end(); one that does not, as the thread was cancelled or has jumped out of a
 * signal handler, is over by itself after some milliseconds. */
bool sw_attend_begin(struct sw_attend *attend);
/* Takes in packets for as long as more are to be expected. Returns what look(arg) does if that is
 * not zero: it is asked when there was an event, and now and then. 0: nothing has come. */
int sw_attend_look(struct sw_attend *attend, int (*look)(void *arg), void *arg);
/* Before the thread sleeps: what to sleep on, too, for so many nanoseconds at most; -1: on nothing,
 * the engine has taken over. */
int sw_attend_rest(struct sw_attend *attend, uint64_t *most_ns);
/* Before it sleeps otherwise: the engine takes over. */
void sw_attend_leave(struct sw_attend *attend);
/* The thread was woken by that descriptor. */
void sw_attend_wake(struct sw_attend *attend);
/* `has_come`: what the program waited for. */
void sw_attend_end(struct sw_attend *attend, bool has_come);

#endif
