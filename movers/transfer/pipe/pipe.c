/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages of a pipe, and the way to sleep: docs/pipe.md says why no doorbell is missed.
 */
#include "transfer/pipe/pipe.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "common/base/bytes.h"
#include "common/time/clock.h"
#include "common/time/deadline.h"
#include "common/time/rest.h"

enum {
    SENDS_KEPT = 16, /* requests that are not records: credits, doorbells, sleeps */
    SIGNAL_EVERY = 32,
    SLEEP_MAX_MS = 1000,
    STALL_MS = 10000, /* a peer whose device confirms nothing for so long is gone */
    LOOKS = 32,       /* at the ring between two looks at the clock */
};

static void break_pipe(struct sw_pipe *pipe, enum sw_xfer_status status)
{
    if (!pipe->status)
        pipe->status = status;
}

/* Words of eight bytes that two sides share are written and read whole. */
static uint64_t read_word(const uint8_t *at)
{
    return le64toh(__atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_ACQUIRE));
}

static void write_word(uint8_t *at, uint64_t value)
{
    __atomic_store_n((uint64_t *)(void *)at, htole64(value), __ATOMIC_RELEASE);
}

/* ---- requests ---- */

static bool pipe_has_room(const struct sw_pipe *pipe, uint32_t requests)
{
    return pipe->posted - pipe->done + requests <= PIPE_SENDS;
}

static struct ibv_sge outbox_piece(const struct sw_pipe *pipe, uint32_t offset, uint32_t bytes)
{
    return (struct ibv_sge){
        .addr = (uintptr_t)pipe->outbox + offset, .length = bytes, .lkey = pipe->outbox_mr->lkey};
}

static struct ibv_send_wr make_request(const struct sw_pipe *pipe, enum ibv_wr_opcode opcode,
                                       struct ibv_sge *piece, uint64_t remote_offset)
{
    return (struct ibv_send_wr){
        .opcode = opcode,
        .sg_list = piece,
        .num_sge = piece != NULL,
        .wr.rdma = {.remote_addr = pipe->remote + remote_offset, .rkey = pipe->remote_key}};
}

/* So many in a list, of which the last asks for a completion if it shall. */
static bool post_requests(struct sw_pipe *pipe, struct ibv_send_wr *first, struct ibv_send_wr *last,
                          uint32_t count, enum pipe_kind kind, bool is_signaled)
{
    struct ibv_send_wr *bad;
    pipe->posted += count;
    if (is_signaled) {
        last->send_flags |= IBV_SEND_SIGNALED;
        pipe->signals[pipe->signals_posted++ % PIPE_SENDS] =
            (struct pipe_signal){kind, pipe->posted, pipe->out.produced};
    }
    if (!ibv_post_send(pipe->connection.id->qp, first, &bad))
        return true;
    break_pipe(pipe, SW_XFER_PEER_GONE); /* a queue pair in error takes none */
    return false;
}

bool pipe_expect_bell(struct sw_pipe *pipe)
{
    struct ibv_recv_wr wr = {.wr_id = PIPE_BELL}, *bad;
    return !ibv_post_recv(pipe->connection.id->qp, &wr, &bad);
}

/* The peer sleeps, and was not woken from this sleep yet. */
static void ring_bell(struct sw_pipe *pipe)
{
    const uint64_t wanted = read_word(pipe->inbox + PIPE_AT_CREDIT + 8);
    if (wanted == pipe->rung || pipe->status)
        return;
    assert(pipe_has_room(pipe, 1)); /* whoever posts what may end a sleep leaves some */
    struct ibv_send_wr wr = make_request(pipe, IBV_WR_SEND, NULL, 0);
    pipe->rung = wanted;
    post_requests(pipe, &wr, &wr, 1, PIPE_BELL, false);
}

/* The count that was told has to be seen before the peer's wish for a doorbell is looked at. */
static void tell_state(struct sw_pipe *pipe)
{
    write_word(pipe->inbox + PIPE_AT_TOLD, pipe->out.produced);
    write_word(pipe->inbox + PIPE_AT_TOLD + 8, pipe->in.told);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* How much was read, and which sleep wants a doorbell. Two requests. */
static void write_credit(struct sw_pipe *pipe, enum pipe_kind kind)
{
    struct ibv_sge piece = outbox_piece(pipe, PIPE_AT_CREDIT_OUT, 16);
    struct ibv_send_wr wr = make_request(pipe, IBV_WR_RDMA_WRITE, &piece, PIPE_AT_CREDIT);
    pipe->in.told = pipe->in.consumed;
    write_word(pipe->outbox + PIPE_AT_CREDIT_OUT, pipe->in.told);
    write_word(pipe->outbox + PIPE_AT_CREDIT_OUT + 8, pipe->wanted);
    tell_state(pipe);
    post_requests(pipe, &wr, &wr, 1, kind, true);
    ring_bell(pipe);
}

static void take_credit(struct sw_pipe *pipe)
{
    if (!pipe_out_credit(&pipe->out, read_word(pipe->inbox + PIPE_AT_CREDIT)))
        break_pipe(pipe, SW_XFER_PROTOCOL);
}

/* ---- completions ---- */

static void ask_peer(struct sw_pipe *pipe)
{
    struct ibv_sge piece = outbox_piece(pipe, PIPE_AT_ASKED, 16);
    struct ibv_send_wr wr = make_request(pipe, IBV_WR_RDMA_READ, &piece, PIPE_AT_TOLD);
    pipe->stage = PIPE_ASKING;
    /* The peer has our wish; what it tells is read behind that. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    post_requests(pipe, &wr, &wr, 1, PIPE_ASK, true);
}

static void take_bell(struct sw_pipe *pipe)
{
    if (pipe->bells++ == pipe->wanted)
        break_pipe(pipe, SW_XFER_PROTOCOL); /* nobody has asked for it */
    else if (!pipe_expect_bell(pipe))
        break_pipe(pipe, SW_XFER_PEER_GONE);
}

static void pipe_take_completion(struct sw_pipe *pipe)
{
    const struct pipe_signal *signal = &pipe->signals[pipe->signals_done++ % PIPE_SENDS];
    pipe->stalled_ns = 0;
    pipe->done = signal->posted;
    pipe->out.reclaimed = signal->produced;
    if (signal->kind == PIPE_TELL && pipe->stage == PIPE_TELLING)
        ask_peer(pipe);
    else if (signal->kind == PIPE_ASK && pipe->stage == PIPE_ASKING)
        pipe->stage = PIPE_SURE;
}

/* Returns whether there was something. */
static bool pipe_poll_queue(struct sw_pipe *pipe)
{
    struct ibv_wc wc;
    bool has_come = false;
    while (!pipe->status && ibv_poll_cq(pipe->connection.queue.cq, 1, &wc) > 0) {
        has_come = true;
        if (wc.status)
            break_pipe(pipe, SW_XFER_PEER_GONE);
        else if (wc.opcode & IBV_WC_RECV)
            take_bell(pipe);
        else
            pipe_take_completion(pipe);
    }
    return has_come;
}

/* ---- sleep ---- */

static void pipe_take_events(struct sw_pipe *pipe)
{
    enum mover_event event;
    mover_queue_drain(&pipe->connection.queue);
    while ((event = mover_connection_next(&pipe->connection)) != MOVER_NOTHING)
        if (event == MOVER_ENDED || event == MOVER_DEVICE_GONE)
            break_pipe(pipe, SW_XFER_PEER_GONE);
}

/* Devices give up by themselves, but some only after minutes. */
static void watch_stall(struct sw_pipe *pipe, uint64_t now_ns)
{
    if (pipe->signals_done == pipe->signals_posted)
        pipe->stalled_ns = 0;
    else if (!pipe->stalled_ns)
        pipe->stalled_ns = now_ns;
    else if (now_ns - pipe->stalled_ns >= STALL_MS * 1000000ull)
        break_pipe(pipe, SW_XFER_PEER_GONE);
}

/* Until something comes of the device or of rdma_cm. The queue is armed. */
static void pipe_sleep_for(struct sw_pipe *pipe, uint64_t deadline_ns)
{
    struct epoll_event event;
    pipe->sleeps++;
    epoll_wait(pipe->epoll_fd, &event, 1,
               mover_ms_until(deadline_ns, mover_now_ns(), SLEEP_MAX_MS));
    pipe_take_events(pipe);
    watch_stall(pipe, mover_now_ns());
}

/* Starts to go to sleep. A doorbell that was not rung yet still holds. */
static void tell_peer(struct sw_pipe *pipe)
{
    const bool is_new = pipe->bells == pipe->wanted;
    pipe->wanted += is_new;
    if (is_new || pipe->in.consumed != pipe->in.told) {
        pipe->stage = PIPE_TELLING;
        write_credit(pipe, PIPE_TELL);
    } else {
        ask_peer(pipe);
    }
}

/* The awaited record or room was neither there when the peer knew of the sleep, nor is it under
 * way; and the doorbell of this sleep has not come yet. */
static bool is_quiet(struct sw_pipe *pipe, bool is_sending)
{
    if (pipe->bells == pipe->wanted)
        return false;
    if (!is_sending)
        return read_word(pipe->outbox + PIPE_AT_ASKED) == pipe->in.consumed;
    take_credit(pipe);
    return read_word(pipe->outbox + PIPE_AT_ASKED + 8) == pipe->out.consumed;
}

/* Sleeps once, or goes a step in that direction. */
static void go_to_sleep(struct sw_pipe *pipe, bool is_sending, uint64_t deadline_ns)
{
    if (pipe->stage == PIPE_AWAKE && pipe_has_room(pipe, 3))
        tell_peer(pipe);
    if (ibv_req_notify_cq(pipe->connection.queue.cq, 0))
        break_pipe(pipe, SW_XFER_SYSTEM);
    const enum pipe_stage stage = pipe->stage;
    const bool has_come = pipe_poll_queue(pipe);
    if (pipe->status)
        return;
    if (pipe->stage == PIPE_SURE) {
        pipe->stage = PIPE_AWAKE;
        if (!is_quiet(pipe, is_sending))
            return;
    } else if (has_come || stage != pipe->stage) {
        return;
    }
    pipe_sleep_for(pipe, deadline_ns);
}

struct waiting {
    uint64_t spin_until_ns;
    uint32_t looks;
};

/* OK: look again. */
static enum sw_xfer_status wait_turn(struct sw_pipe *pipe, struct waiting *waiting, bool is_sending,
                                     uint64_t deadline_ns)
{
    if (!deadline_ns)
        return SW_XFER_TIMEOUT;
    if (++waiting->looks % LOOKS) {
        mover_rest_shortly();
        return SW_XFER_OK;
    }
    pipe_poll_queue(pipe);
    const uint64_t now = mover_now_ns();
    if (pipe->status)
        return SW_XFER_OK;
    if (now >= deadline_ns)
        return SW_XFER_TIMEOUT;
    if (!waiting->spin_until_ns)
        waiting->spin_until_ns = now + pipe->spin_us * 1000ull;
    if (now >= waiting->spin_until_ns)
        go_to_sleep(pipe, is_sending, deadline_ns);
    return SW_XFER_OK;
}

/* ---- messages ---- */

/* The mark of a record goes behind all else of it. */
static void write_records(struct sw_pipe *pipe, const struct pipe_record *records, unsigned count)
{
    struct ibv_sge pieces[4];
    struct ibv_send_wr wrs[4];
    for (unsigned i = 0; i < count; i++) {
        const uint32_t at = PIPE_AT_MIRROR + records[i].offset;
        pieces[2 * i] = outbox_piece(pipe, at + 4, records[i].bytes - 4);
        pieces[2 * i + 1] = outbox_piece(pipe, at, 4);
        for (unsigned j = 2 * i; j < 2 * i + 2; j++) {
            const uint64_t offset = pieces[j].addr - (uintptr_t)pipe->outbox - PIPE_AT_MIRROR;
            wrs[j] = make_request(pipe, IBV_WR_RDMA_WRITE, &pieces[j], PIPE_AT_RING + offset);
            wrs[j].next = j + 1 < 2 * count ? &wrs[j + 1] : NULL;
        }
    }
    const struct pipe_signal *last = &pipe->signals[(pipe->signals_posted - 1) % PIPE_SENDS];
    const bool is_due = pipe->posted + 2 * count - last->posted >= SIGNAL_EVERY ||
                        pipe->out.produced - last->produced >= pipe->out.bytes / 4;
    post_requests(pipe, wrs, &wrs[2 * count - 1], 2 * count, PIPE_WRITTEN, is_due);
}

static unsigned reserve_room(struct sw_pipe *pipe, uint32_t bytes, struct pipe_record records[2])
{
    if (pipe->posted - pipe->done >= PIPE_SENDS / 2)
        pipe_poll_queue(pipe);
    if (!pipe_has_room(pipe, 4 + SENDS_KEPT))
        return 0;
    unsigned count = pipe_out_reserve(&pipe->out, bytes, records);
    if (count)
        return count;
    take_credit(pipe);
    return pipe->status ? 0 : pipe_out_reserve(&pipe->out, bytes, records);
}

enum sw_xfer_status sw_pipe_send(struct sw_pipe *pipe, const struct sw_pipe_part *parts,
                                 unsigned count, uint64_t deadline_ns)
{
    struct pipe_record records[2];
    struct waiting waiting = {0};
    uint64_t bytes = 0;
    unsigned found;
    for (unsigned i = 0; i < count; i++)
        if (__builtin_add_overflow(bytes, parts[i].bytes, &bytes) || bytes > SW_PIPE_MESSAGE_MAX)
            return SW_XFER_INVALID;
    if (mover_is_forked(&pipe->guard))
        return SW_XFER_FORKED;
    while (!pipe->status && !(found = reserve_room(pipe, (uint32_t)bytes, records))) {
        const enum sw_xfer_status status = wait_turn(pipe, &waiting, true, deadline_ns);
        if (status)
            return status;
    }
    if (pipe->status)
        return pipe->status;
    uint8_t *at = pipe->outbox + PIPE_AT_MIRROR + records[found - 1].offset + PIPE_HEAD;
    for (unsigned i = 0; i < count; at += parts[i++].bytes)
        if (parts[i].bytes)
            memcpy(at, parts[i].data, parts[i].bytes);
    tell_state(pipe);
    write_records(pipe, records, found);
    ring_bell(pipe);
    return pipe->status;
}

static void pipe_take_message(struct sw_pipe *pipe, const uint8_t *message, uint32_t length,
                              void *data)
{
    if (length)
        memcpy(data, message, length);
    pipe_in_drop(&pipe->in, length);
    if (!pipe_in_owes(&pipe->in) || pipe->status)
        return;
    if (!pipe_has_room(pipe, 2))
        pipe_poll_queue(pipe);
    if (pipe_has_room(pipe, 2))
        write_credit(pipe, PIPE_WRITTEN);
}

enum sw_xfer_status sw_pipe_receive(struct sw_pipe *pipe, void *data, size_t capacity,
                                    uint64_t deadline_ns, size_t *bytes)
{
    struct waiting waiting = {0};
    if (mover_is_forked(&pipe->guard))
        return SW_XFER_FORKED;
    for (;;) {
        const uint8_t *message;
        uint32_t length;
        const bool has_ended = pipe->status; /* what came before is all there then */
        const enum pipe_look look = pipe_in_look(&pipe->in, SW_PIPE_MESSAGE_MAX, &message, &length);
        if (look == PIPE_BROKEN)
            break_pipe(pipe, SW_XFER_PROTOCOL);
        if (look == PIPE_MESSAGE && length > capacity)
            return SW_XFER_INVALID;
        if (look == PIPE_MESSAGE) {
            pipe_take_message(pipe, message, length, data);
            *bytes = length;
            return SW_XFER_OK;
        }
        if (has_ended)
            return pipe->status;
        const enum sw_xfer_status status = wait_turn(pipe, &waiting, false, deadline_ns);
        if (status)
            return status;
    }
}

enum sw_xfer_status sw_pipe_flush(struct sw_pipe *pipe, uint64_t deadline_ns)
{
    if (mover_is_forked(&pipe->guard))
        return SW_XFER_FORKED;
    if (!pipe->status && pipe->posted != pipe->done && pipe_has_room(pipe, 2))
        write_credit(pipe, PIPE_WRITTEN);
    while (pipe_poll_queue(pipe), !pipe->status && pipe->posted != pipe->done) {
        if (mover_now_ns() >= deadline_ns)
            return SW_XFER_TIMEOUT;
        if (ibv_req_notify_cq(pipe->connection.queue.cq, 0))
            break_pipe(pipe, SW_XFER_SYSTEM);
        else if (!pipe_poll_queue(pipe))
            pipe_sleep_for(pipe, deadline_ns);
    }
    return pipe->status;
}

void sw_pipe_set_spin(struct sw_pipe *pipe, uint32_t spin_us)
{
    pipe->spin_us = spin_us;
}

uint64_t sw_pipe_sleeps(const struct sw_pipe *pipe)
{
    return pipe->sleeps;
}
