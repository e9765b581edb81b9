/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a thread of a server waits for: descriptors and times. Its owner runs it, or takes turns of
 * it between other work:
 *
 *     struct mover_loop loop;
 *     struct mover_watch events = {.fd = fd, .ready = take_events, .context = server};
 *     mover_loop_open(&loop);
 *     mover_loop_watch(&loop, &events);
 *     mover_loop_run(&loop);           until a ready() calls mover_loop_stop()
 *     mover_loop_close(&loop);
 *
 * A loop has one thread and no lock. Another one may only call mover_loop_watch().
 */
#ifndef SW_MOVERS_LOOP_H
#define SW_MOVERS_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

/* A descriptor, a time, or both. Its owner has it, and has set the first four. */
struct mover_watch {
    int fd;      /* -1: a time alone */
    bool is_own; /* ready() touches nothing of other threads: for owners that have several */
    /* There is something to read, or the time has come. Must not block. NULL: only ends the wait */
    void (*ready)(struct mover_watch *watch);
    void *context;
    uint64_t due_ns; /* the loop's, as is `node`: 0 where no time is set */
    struct list_node node;
};

enum { MOVER_LOOP_EVENTS = 16 };

struct mover_loop {
    /* For what makes its descriptors itself, as mover_queue_open(): it takes the watch as data. */
    int epoll_fd;
    bool is_over;      /* mover_loop_stop() was called */
    struct list timed; /* watches that wait for a time */
    uint64_t now_ns;   /* at the end of the newest wait, where there are such */
    int count, at;     /* found by that wait, and handed out already */
    struct mover_watch *found[MOVER_LOOP_EVENTS];
};

/* 0, or a negative errno: then there is nothing to close, and closing does nothing. */
int mover_loop_open(struct mover_loop *loop);
void mover_loop_close(struct mover_loop *loop);

/* Looks at the descriptor from now on. 0, or a negative errno. */
int mover_loop_watch(struct mover_loop *loop, struct mover_watch *watch);
/* Looks neither at the descriptor, which is still open, nor at the time. The watch is the owner's
 * to free, in a ready() of whichever watch, too. One that is not watched stays as it is. */
void mover_loop_unwatch(struct mover_loop *loop, struct mover_watch *watch);
/* Calls ready() once at that time of mover_now_ns(), in place of one that was set before; 0: not at
 * all. Needs no mover_loop_watch(). */
void mover_loop_call_at(struct mover_loop *loop, struct mover_watch *watch, uint64_t due_ns);

/* Runs until it is stopped. */
void mover_loop_run(struct mover_loop *loop);
/* Ends mover_loop_run() with the turn that calls it. */
void mover_loop_stop(struct mover_loop *loop);
/* Waits for something, `longest_ms` at most (-1: for ever), and calls each ready() once. */
void mover_loop_turn(struct mover_loop *loop, int longest_ms);

/* The two halves of a turn, for owners that have to do something before they call ready(). */
void mover_loop_wait(struct mover_loop *loop, int longest_ms);
/* The next watch that is ready; NULL: that were all. */
struct mover_watch *mover_loop_next(struct mover_loop *loop);

#endif
