/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include <nvme/types.h>

#include "common/time/clock.h"
#include "nvme/target/tier/inside.h"

void nvt_tier_enter(struct nvt_tier *tier, struct nvt_tier_turn *turn, struct nvt_uring *uring)
{
    *turn = (struct nvt_tier_turn){.uring = uring};
    pthread_mutex_lock(&tier->lock);
    tier->turn = turn;
    tier->now_ns = mover_now_ns();
    nvt_tier_index_answered(tier);
}

static struct nvt_io *turn_around(struct nvt_io *last, bool is_lower)
{
    struct nvt_io *first = NULL;
    while (last) {
        struct nvt_io *before = is_lower ? last->user : last->owner;
        if (is_lower)
            last->user = first;
        else
            last->owner = first;
        first = last;
        last = before;
    }
    return first;
}

static void finish_all(struct nvt_io *last)
{
    struct nvt_io *next;
    for (struct nvt_io *io = turn_around(last, false); io; io = next) {
        next = io->owner;
        io->done(io, (uint16_t)io->moved);
    }
}

void nvt_tier_leave(struct nvt_tier *tier)
{
    struct nvt_tier_turn *turn = tier->turn;
    struct nvt_backend *file = tier->file;
    const bool has_steps = tier->phase == NVT_TIER_WALKING ||
                           tier->destage.step == NVT_TIER_DROPPING || tier->wants_runs ||
                           !list_is_empty(&tier->answering);
    atomic_store_explicit(&tier->has_steps, has_steps, memory_order_relaxed);
    tier->turn = NULL;
    pthread_mutex_unlock(&tier->lock);
    struct nvt_io *next;
    for (struct nvt_io *io = turn_around(turn->lower, true); io; io = next) {
        next = io->user;
        io->user = NULL;
        file->ops->submit(file, io);
    }
    finish_all(turn->ended);
}

static struct nvt_tier_op *take_tier_op(struct nvt_tier *tier, struct nvt_io *io)
{
    struct nvt_tier_op *op = tier->spare_ops;
    if (op)
        tier->spare_ops = op->next;
    else if (!(op = malloc(sizeof(*op))))
        return NULL;
    else {
        op->all = tier->ops;
        tier->ops = op;
    }
    *op = (struct nvt_tier_op){.all = op->all, .tier = tier, .io = io};
    return op;
}

static struct nvt_tier_seat *seat_of(struct nvt_tier *tier, const struct nvt_uring *uring)
{
    struct nvt_tier_seat *seat = tier->seats;
    while (seat && seat->uring != uring)
        seat = seat->next;
    return seat;
}

void nvt_tier_io_end(struct nvt_tier *tier, struct nvt_io *io, uint16_t status)
{
    io->moved = status;
    if (io->uring == tier->turn->uring) {
        io->owner = tier->turn->ended;
        tier->turn->ended = io;
        return;
    }
    struct nvt_tier_seat *seat = seat_of(tier, io->uring);
    io->owner = seat->ended;
    seat->ended = io;
    (void)eventfd_write(seat->uring->event_fd, 1);
}

void nvt_tier_op_end(struct nvt_tier_op *op, uint16_t status)
{
    struct nvt_tier *tier = op->tier;
    struct nvt_io *io = op->io;
    op->next = tier->spare_ops;
    tier->spare_ops = op;
    nvt_tier_io_end(tier, io, status);
}

void nvt_tier_ask_file(struct nvt_tier *tier, struct nvt_io *lower)
{
    lower->uring = tier->turn->uring;
    lower->user = tier->turn->lower;
    tier->turn->lower = lower;
}

void nvt_tier_fail(struct nvt_tier *tier, const char *format, ...)
{
    if (tier->phase == NVT_TIER_FAILED)
        return;
    tier->phase = NVT_TIER_FAILED;
    va_list args;
    va_start(args, format);
    vsnprintf(tier->trouble, sizeof(tier->trouble), format, args);
    va_end(args);
    fprintf(
        stderr,
        "sidewire nvme target: tier: %s. Writes end with an error from now on, reads go on, and "
        "the log keeps what FILE lacks: mend that, then remove the namespace and add it again\n",
        tier->trouble);
    nvt_tier_go_on(tier);
}

static bool end_others(struct nvt_tier_seat *seat)
{
    struct nvt_tier *tier = seat->tier;
    if (!__atomic_load_n(&seat->ended, __ATOMIC_RELAXED))
        return false;
    pthread_mutex_lock(&tier->lock);
    struct nvt_io *ended = seat->ended;
    seat->ended = NULL;
    pthread_mutex_unlock(&tier->lock);
    finish_all(ended);
    return ended;
}

static bool poll_seat(struct nvt_poller *poller)
{
    struct nvt_tier_seat *seat = (struct nvt_tier_seat *)poller;
    const bool any = end_others(seat);
    return nvt_tier_poll(seat->tier, seat) || any;
}

bool nvt_tier_take_seat(struct nvt_tier *tier, struct nvt_uring *uring)
{
    if (seat_of(tier, uring))
        return true;
    struct nvt_tier_seat *seat = calloc(1, sizeof(*seat));
    if (!seat)
        return false;
    *seat = (struct nvt_tier_seat){
        .poller.poll = poll_seat, .tier = tier, .uring = uring, .next = tier->seats};
    tier->seats = seat;
    nvt_uring_add_poller(uring, &seat->poller);
    return true;
}

static void submit_op(struct nvt_tier *tier, struct nvt_io *io)
{
    struct nvt_tier_op *op = nvt_tier_take_seat(tier, io->uring) ? take_tier_op(tier, io) : NULL;
    if (!op) {
        io->moved = NVME_SC_INTERNAL;
        io->owner = tier->turn->ended;
        tier->turn->ended = io;
        return;
    }
    if (io->kind == NVT_READ || io->kind == NVT_VERIFY)
        nvt_tier_read(op);
    else
        nvt_tier_append(op);
}

void nvt_tier_submit(struct nvt_tier *tier, struct nvt_io *io)
{
    struct nvt_tier_turn turn;
    if (io->kind == NVT_FLUSH) /* what was answered is persistent */
        return io->done(io, 0);
    nvt_tier_enter(tier, &turn, io->uring);
    submit_op(tier, io);
    nvt_tier_leave(tier);
}

void nvt_tier_detach(struct nvt_tier *tier, struct nvt_io *io)
{
    struct nvt_tier_turn turn;
    nvt_tier_enter(tier, &turn, io->uring);
    if (nvt_tier_take_seat(tier, io->uring)) {
        tier->leaver = io;
        tier->destage.is_hurried = !tier->hands_over;
        nvt_tier_flow(tier);
    } else {
        io->moved = NVME_SC_INTERNAL;
        io->owner = NULL;
        turn.ended = io;
    }
    nvt_tier_leave(tier);
}
