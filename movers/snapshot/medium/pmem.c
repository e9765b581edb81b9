/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pmem:ADDR[:PORT]/REGION. Each WRITE goes with its persistent flush in one chain: a server that is
 * started anew may have lost what was only written, and here it gets all of it again. So a FLUSH
 * has nothing left to do. A region that cannot flush for good is volatile, and is told to be.
 *
 * Chains that a lost connection leaves undecided are posted again in the next session, once its
 * claim was read. They write the same bytes to the same blocks, in a session that is alone: so an
 * earlier one's are there before, or never.
 */
#include "snapshot/medium/pmem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/base/minmax.h"
#include "common/time/clock.h"
#include "snapshot/medium/kinds.h"

/* Timers have no descriptor of the library's. */
enum { TICK_MS = 100, SMALL_BYTES = 64 << 10, STALL_DEFAULT_MS = 10000 };

static struct snap_pmem *pmem_of(struct snap_medium *medium)
{
    return (struct snap_pmem *)medium;
}

static bool is_usable(const struct snap_pmem *p)
{
    return p->pmem && !p->medium.error && sw_pmem_state_of(p->pmem) == SW_PMEM_LIVE &&
           (!p->medium.is_writable || p->session == sw_pmem_session(p->pmem));
}

/* ---- chains ---- */

static struct snap_pmem_chain *free_chain(struct snap_pmem *p)
{
    for (uint32_t i = 0; i < SNAP_PMEM_CHAINS; i++)
        if (!p->chains[i].pmem)
            return &p->chains[i];
    return NULL;
}

static void end_chain_ios(struct snap_pmem *p, struct snap_pmem_chain *chain, int result)
{
    struct snap_io *io;
    while ((io = snap_line_take(&chain->ios)))
        if (result == -EAGAIN)
            snap_line_add(&p->waiting, io);
        else
            snap_ended_add(&p->ended, io, result);
    chain->pmem = NULL;
}

static void pmem_chain_done(void *argument, const struct sw_pmem_result *result)
{
    struct snap_pmem_chain *chain = argument;
    struct snap_pmem *p = chain->pmem;
    switch (result->status) {
    case SW_PMEM_OK:
        return end_chain_ios(p, chain, 0);
    case SW_PMEM_NEW_SESSION:
    case SW_PMEM_MAYBE_DONE:
    case SW_PMEM_NOT_DONE:
        return end_chain_ios(p, chain, p->medium.error ? p->medium.error : -EAGAIN);
    case SW_PMEM_AGAIN:
    case SW_PMEM_INVALID:
    case SW_PMEM_NOT_REGISTERED:
    case SW_PMEM_NO_MEMORY:
    case SW_PMEM_TIMEOUT:
    case SW_PMEM_ADDRESS:
    case SW_PMEM_REFUSED:
    case SW_PMEM_UNREACHABLE:
    case SW_PMEM_NO_REGION:
    case SW_PMEM_OTHER_REGION:
    case SW_PMEM_DENIED:
    case SW_PMEM_PROTOCOL:
    case SW_PMEM_UNSUPPORTED:
    case SW_PMEM_CLOSED:
    case SW_PMEM_SYSTEM:
    case SW_PMEM_DISK_FAILED:
    case SW_PMEM_FORKED:
    case SW_PMEM_BUSY:
        break;
    }
    snap_medium_fail(&p->medium, snap_pmem_errno(result->status), "%.100s: %s", p->medium.name,
                     sw_pmem_status_text(result->status));
    end_chain_ios(p, chain, p->medium.error);
}

static void fill_op(struct snap_pmem *p, const struct snap_io *io, struct sw_pmem_op *op)
{
    const struct snap_memory *memory = snap_memories_find(&p->memories, io->data, io->bytes);
    *op =
        (struct sw_pmem_op){.opcode = io->kind == SNAP_IO_READ ? SW_PMEM_OP_READ : SW_PMEM_OP_WRITE,
                            .offset = io->offset,
                            .pieces = {{io->data, io->bytes, memory->registration}},
                            .pieces_count = 1};
}

/* A read, or writes and the flush of all bytes between the first and the last. Writes join others
 * where they are small, and near: a flush takes its time, and it is of whatever lies between. */
static uint32_t gather_ops(struct snap_pmem *p, struct snap_pmem_chain *chain,
                           struct sw_pmem_op ops[SW_PMEM_CHAIN_MAX])
{
    struct snap_io *io = snap_line_take(&p->waiting);
    const bool writes = io->kind == SNAP_IO_WRITE;
    uint64_t first = io->offset, last = io->offset + io->bytes;
    uint32_t count = 0;
    fill_op(p, io, &ops[count++]);
    snap_line_add(&chain->ios, io);
    while (writes && count < SW_PMEM_CHAIN_MAX - 1 && (io = p->waiting.first) &&
           io->kind == SNAP_IO_WRITE) {
        const uint64_t low = mover_min_u64(first, io->offset),
                       high = mover_max_u64(last, io->offset + io->bytes);
        if (high - low > SNAP_IO_BYTES_MAX ||
            (io->bytes > SMALL_BYTES && high - low > SMALL_BYTES * SW_PMEM_CHAIN_MAX))
            break;
        first = low;
        last = high;
        snap_line_take(&p->waiting);
        fill_op(p, io, &ops[count++]);
        snap_line_add(&chain->ios, io);
    }
    if (writes && p->is_persistent)
        ops[count++] = (struct sw_pmem_op){.opcode = SW_PMEM_OP_FLUSH,
                                           .flush = SW_PMEM_FLUSH_PERSISTENT,
                                           .offset = first,
                                           .bytes = last - first};
    return count;
}

static bool pmem_post_chain(struct snap_pmem *p)
{
    struct sw_pmem_op ops[SW_PMEM_CHAIN_MAX];
    struct snap_pmem_chain *chain = free_chain(p);
    if (!chain || !p->waiting.first)
        return false;
    chain->pmem = p;
    chain->ios = (struct snap_line){0};
    const uint32_t count = gather_ops(p, chain, ops);
    const enum sw_pmem_status status =
        sw_pmem_post(p->pmem, &(struct sw_pmem_chain){.ops = ops,
                                                      .count = count,
                                                      .session = p->session,
                                                      .done = pmem_chain_done,
                                                      .arg = chain});
    if (!status)
        return true;
    if (status == SW_PMEM_AGAIN)
        end_chain_ios(p, chain, -EAGAIN);
    else
        pmem_chain_done(chain, &(struct sw_pmem_result){.status = status});
    return false;
}

/* ---- the claim ---- */

static void post_claim(struct snap_pmem *p, enum sw_pmem_opcode opcode, uint8_t *block,
                       sw_pmem_done *done, bool *is_under_way)
{
    const struct sw_pmem_op op = {.opcode = opcode,
                                  .offset = p->claim_at,
                                  .pieces = {{block, SNAP_BLOCK_BYTES, p->own_mem}},
                                  .pieces_count = 1};
    *is_under_way = !sw_pmem_post(
        p->pmem,
        &(struct sw_pmem_chain){
            .ops = &op, .count = 1, .session = sw_pmem_session(p->pmem), .done = done, .arg = p});
}

static void claim_was_read(void *argument, const struct sw_pmem_result *result)
{
    struct snap_pmem *p = argument;
    struct snap_claim found;
    p->is_looking = false;
    if (result->status) /* another session, which reads it anew */
        return;
    if (snap_claim_decode(p->own + SNAP_BLOCK_BYTES, &found) && snap_claim_is_of(&p->claim, &found))
        p->session = result->session;
    else if (!found.is_torn)
        snap_medium_fail(&p->medium, -ESTALE, "another writer has taken over %.100s: %s",
                         p->medium.name, found.writer);
}

static void claim_was_written(void *argument, const struct sw_pmem_result *result)
{
    struct snap_pmem *p = argument;
    (void)result;
    p->is_beating = false;
}

static void keep_claim(struct snap_pmem *p)
{
    if (!p->medium.is_writable || p->medium.error || sw_pmem_state_of(p->pmem) != SW_PMEM_LIVE)
        return;
    if (!is_usable(p)) {
        if (!p->is_looking)
            post_claim(p, SW_PMEM_OP_READ, p->own + SNAP_BLOCK_BYTES, claim_was_read,
                       &p->is_looking);
        return;
    }
    const uint64_t now_ns = mover_now_ns();
    if (p->is_beating || now_ns < p->beat_ns + SNAP_BEAT_MS * NS_PER_MS)
        return;
    p->beat_ns = now_ns;
    p->claim.beat++;
    snap_claim_encode(&p->claim, p->own);
    post_claim(p, SW_PMEM_OP_WRITE, p->own, claim_was_written, &p->is_beating);
}

/* ---- the medium ---- */

static int pmem_use(struct snap_medium *medium, void *data, size_t bytes)
{
    struct snap_pmem *p = pmem_of(medium);
    struct sw_pmem_mem *mem;
    if (mover_is_forked(&p->guard) || !p->pmem)
        return p->pmem ? -EPERM : medium->error;
    if (p->memories.count == SNAP_MEMORIES_MAX)
        return -ENOSPC;
    const enum sw_pmem_status status = sw_pmem_mem_register(p->pmem, data, bytes, &mem);
    if (status)
        return snap_pmem_errno(status);
    const int code = snap_memories_add(&p->memories, data, bytes, mem);
    if (code)
        sw_pmem_mem_release(mem);
    return code;
}

static void pmem_submit(struct snap_medium *medium, struct snap_io *io)
{
    struct snap_pmem *p = pmem_of(medium);
    const int refusal =
        mover_is_forked(&p->guard) ? -EPERM : snap_io_refusal(medium, &p->memories, io);
    if (refusal || io->kind == SNAP_IO_FLUSH)
        snap_ended_add(&p->ended, io, refusal);
    else
        snap_line_add(&p->waiting, io);
}

/* A fenced one connects no more: that would end the newer one's session. */
static void end_if_failed(struct snap_pmem *p)
{
    struct sw_pmem_error error;
    if (p->pmem && !p->medium.error && sw_pmem_state_of(p->pmem) == SW_PMEM_DEAD) {
        sw_pmem_last_error(p->pmem, &error);
        snap_medium_fail(&p->medium, snap_pmem_errno(error.status), "%.100s: %s", p->medium.name,
                         error.text);
    }
    if (!p->medium.error)
        return;
    if (p->pmem)
        sw_pmem_close(p->pmem);
    p->pmem = NULL;
    snap_ended_add_all(&p->ended, &p->waiting, p->medium.error);
}

static void pmem_poll(struct snap_medium *medium)
{
    struct snap_pmem *p = pmem_of(medium);
    if (!mover_is_forked(&p->guard) && p->pmem) {
        sw_pmem_poll(p->pmem);
        keep_claim(p);
        while (is_usable(p) && pmem_post_chain(p))
            ;
        end_if_failed(p);
    }
    snap_ended_tell(&p->ended);
}

static bool pmem_arm(struct snap_medium *medium)
{
    struct snap_pmem *p = pmem_of(medium);
    uint64_t count;
    if (p->ended.first || mover_is_forked(&p->guard) || !p->pmem)
        return !p->ended.first;
    (void)!read(p->timer_fd, &count, sizeof(count));
    while (is_usable(p) && pmem_post_chain(p))
        ;
    return !p->ended.first && !medium->error && sw_pmem_arm(p->pmem);
}

static void free_pmem(struct snap_pmem *p)
{
    if (p->pmem)
        sw_pmem_close(p->pmem);
    if (p->medium.fd >= 0)
        close(p->medium.fd);
    if (p->timer_fd >= 0)
        close(p->timer_fd);
    if (!mover_is_forked(&p->guard))
        free(p->own);
    mover_fork_guard_close(&p->guard);
    free(p);
}

static void pmem_close(struct snap_medium *medium)
{
    struct snap_pmem *p = pmem_of(medium);
    if (!mover_is_forked(&p->guard)) {
        if (!medium->error)
            snap_pmem_let_go(p);
        snap_medium_fail(medium, -ECANCELED, "%.150s was closed", medium->name);
        end_if_failed(p);
    }
    while (p->ended.first)
        snap_ended_tell(&p->ended);
    free_pmem(p);
}

static const struct snap_medium_ops pmem_ops = {.use = pmem_use,
                                                .submit = pmem_submit,
                                                .poll = pmem_poll,
                                                .arm = pmem_arm,
                                                .close = pmem_close};

/* ---- opening ---- */

static void pmem_set_options(struct snap_pmem *p, const struct snap_medium_options *options)
{
    const uint32_t stall_ms =
        options->stall_timeout_ms ? options->stall_timeout_ms : STALL_DEFAULT_MS;
    sw_pmem_options_init(&p->options);
    p->options.address = p->place.address;
    p->options.port = p->place.port;
    p->options.region = p->place.name;
    p->options.label = options->writer;
    p->options.chains = SNAP_PMEM_CHAINS + 2; /* the claim's, too */
    if (options->connect_timeout_ms)
        p->options.connect_timeout_ms = options->connect_timeout_ms;
    /* Both parts of it: until a silent server counts as lost, and until it is given up. */
    p->options.request_timeout_ms = stall_ms / 2 + 1;
    p->options.loss_timeout_ms = stall_ms / 2 + 1;
}

static int make_descriptor(struct snap_pmem *p)
{
    const struct timespec each = {.tv_nsec = TICK_MS * (long)NS_PER_MS};
    const struct itimerspec every = {each, each};
    struct epoll_event event = {.events = EPOLLIN};
    p->medium.fd = epoll_create1(EPOLL_CLOEXEC);
    p->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (p->medium.fd < 0 || p->timer_fd < 0 || timerfd_settime(p->timer_fd, 0, &every, NULL) ||
        epoll_ctl(p->medium.fd, EPOLL_CTL_ADD, p->timer_fd, &event) ||
        epoll_ctl(p->medium.fd, EPOLL_CTL_ADD, sw_pmem_fd(p->pmem), &event))
        return -errno;
    return 0;
}

int snap_pmem_open(const char *rest, const struct snap_medium_options *options, char *error,
                   size_t error_bytes, struct snap_medium **medium)
{
    struct snap_pmem *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->timer_fd = p->medium.fd = -1;
    p->medium.ops = &pmem_ops;
    p->medium.is_writable = options->is_writable;
    p->medium.reads_back = true; /* what the network, and the server's memory, made of it */
    snprintf(error, error_bytes, "out of memory");
    int code = snap_place_parse(rest, "pmem:ADDR[:PORT]/REGION", error, error_bytes, &p->place);
    if (!code && (!mover_fork_guard_open(&p->guard) ||
                  !(p->own = aligned_alloc(SNAP_BLOCK_BYTES, SNAP_PMEM_OWN_BYTES))))
        code = -ENOMEM;
    if (!code) {
        pmem_set_options(p, options);
        code = snap_pmem_take(p, options, error, error_bytes);
    }
    if (!code && (code = make_descriptor(p)))
        snprintf(error, error_bytes, "%s", strerror(-code));
    if (code) {
        free_pmem(p);
        return code;
    }
    *medium = &p->medium;
    return 0;
}
