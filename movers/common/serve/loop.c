/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/loop.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/time/clock.h"
#include "common/time/deadline.h"

int mover_loop_open(struct mover_loop *loop)
{
    *loop = (struct mover_loop){.epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
    list_init(&loop->timed);
    return loop->epoll_fd < 0 ? -errno : 0;
}

void mover_loop_close(struct mover_loop *loop)
{
    if (loop->epoll_fd >= 0)
        close(loop->epoll_fd);
    loop->epoll_fd = -1;
    loop->count = loop->at = 0;
}

int mover_loop_watch(struct mover_loop *loop, struct mover_watch *watch)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};
    return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) ? -errno : 0;
}

void mover_loop_unwatch(struct mover_loop *loop, struct mover_watch *watch)
{
    if (watch->fd >= 0)
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    mover_loop_call_at(loop, watch, 0);
    for (int i = loop->at; i < loop->count; i++)
        if (loop->found[i] == watch)
            loop->found[i] = NULL;
}

void mover_loop_call_at(struct mover_loop *loop, struct mover_watch *watch, uint64_t due_ns)
{
    if (watch->due_ns)
        list_remove(&watch->node);
    /* One that is set again and again by its own ready() is for the next turn. */
    watch->due_ns = due_ns && due_ns <= loop->now_ns ? loop->now_ns + 1 : due_ns;
    if (due_ns)
        list_append(&loop->timed, &watch->node);
}

/* The first that comes; NULL: no time is set. */
static struct mover_watch *find_earliest(const struct mover_loop *loop)
{
    struct mover_watch *earliest = NULL;
    for (const struct list_node *node = list_first(&loop->timed); node;
         node = list_after(&loop->timed, node)) {
        struct mover_watch *watch = LIST_MEMBER(node, struct mover_watch, node);
        if (!earliest || watch->due_ns < earliest->due_ns)
            earliest = watch;
    }
    return earliest;
}

void mover_loop_wait(struct mover_loop *loop, int longest_ms)
{
    struct epoll_event events[MOVER_LOOP_EVENTS];
    const struct mover_watch *earliest = find_earliest(loop);
    assert(loop->at == loop->count); /* else some that were found would be lost */
    if (earliest)
        longest_ms =
            mover_ms_until(earliest->due_ns, mover_now_ns(), longest_ms < 0 ? INT_MAX : longest_ms);
    const int count = epoll_wait(loop->epoll_fd, events, MOVER_LOOP_EVENTS, longest_ms);
    for (int i = 0; i < count; i++)
        loop->found[i] = events[i].data.ptr;
    loop->count = count > 0 ? count : 0;
    loop->at = 0;
    if (earliest)
        loop->now_ns = mover_now_ns();
}

struct mover_watch *mover_loop_next(struct mover_loop *loop)
{
    struct mover_watch *watch = find_earliest(loop);
    if (watch && watch->due_ns <= loop->now_ns) {
        mover_loop_call_at(loop, watch, 0);
        return watch;
    }
    while (loop->at < loop->count)
        if ((watch = loop->found[loop->at++]))
            return watch;
    return NULL;
}

void mover_loop_turn(struct mover_loop *loop, int longest_ms)
{
    struct mover_watch *watch;
    mover_loop_wait(loop, longest_ms);
    while ((watch = mover_loop_next(loop)))
        if (watch->ready)
            watch->ready(watch);
}

void mover_loop_run(struct mover_loop *loop)
{
    while (!loop->is_over)
        mover_loop_turn(loop, -1);
}

void mover_loop_stop(struct mover_loop *loop)
{
    loop->is_over = true;
}
