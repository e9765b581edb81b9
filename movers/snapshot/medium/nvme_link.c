/* SPDX-License-Identifier: BSD-2-Clause */
/* How a connection comes up: registered, reserved, its claim read. Each phase is one command. */
#include "snapshot/medium/nvme.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include <nvme/types.h>

#include "common/base/bytes.h"
#include "common/base/minmax.h"
#include "common/time/clock.h"

enum { RETRY_MS = 200, STATUS_BITS = 0x7ff, HOLDS = 1, ABORTED_BY_PREEMPTION = 0x1b };

enum { CLAIM_OUT, CLAIM_IN, FIRST, KEYS = 4, REPORT };
static const uint64_t KEY_MARK = 0x534e000000000000, KEY_ID_BITS = 0x0000ffffffffffff; /* "SN" */

static uint16_t status_code_of(const struct sw_nvme_result *result)
{
    return result->status == SW_NVME_FAILED ? result->nvme_status & STATUS_BITS : 0;
}

int snap_nvme_errno(const struct sw_nvme_result *result)
{
    const uint16_t code = status_code_of(result);
    if (code == NVME_SC_RESERVATION_CONFLICT || code == ABORTED_BY_PREEMPTION)
        return -ESTALE;
    if (code == NVME_SC_CAP_EXCEEDED)
        return -ENOSPC;
    if (code)
        return -EIO;
    switch (result->status) {
    case SW_NVME_OK:
        return 0;
    case SW_NVME_NO_MEMORY:
        return -ENOMEM;
    case SW_NVME_NOT_DONE:
    case SW_NVME_MAYBE_DONE:
    case SW_NVME_AGAIN:
        return -EAGAIN;
    case SW_NVME_ADDRESS:
        return -EHOSTUNREACH;
    case SW_NVME_REFUSED:
    case SW_NVME_AUTHENTICATION:
        return -ECONNREFUSED;
    case SW_NVME_CLOSED:
        return -ECANCELED;
    case SW_NVME_UNSUPPORTED:
        return -EOPNOTSUPP;
    case SW_NVME_INVALID:
    case SW_NVME_TOO_LONG:
    case SW_NVME_NOT_REGISTERED:
        return -EINVAL;
    case SW_NVME_PROTOCOL:
        return -EPROTO;
    case SW_NVME_FORKED:
        return -EPERM;
    case SW_NVME_FAILED:
    case SW_NVME_TIMEOUT:
    case SW_NVME_UNREACHABLE:
    case SW_NVME_SYSTEM:
        break;
    }
    return -ENOTCONN;
}

struct sw_nvme_io snap_nvme_own_io(struct snap_nvme *n, uint32_t block, uint64_t offset,
                                   uint32_t bytes, sw_nvme_done *done)
{
    return (struct sw_nvme_io){.nsid = n->nsid,
                               .lba = offset / n->block_bytes,
                               .blocks = bytes / n->block_bytes,
                               .data = n->own + block * (size_t)SNAP_BLOCK_BYTES,
                               .bytes = bytes,
                               .mem = n->own_mem,
                               .done = done,
                               .arg = n};
}

/* ---- a connection ---- */

/* Another host each time. A UUID of version 4. */
static bool draw_host(struct snap_nvme *n)
{
    uint8_t b[16];
    if (getrandom(b, sizeof(b), 0) != (ssize_t)sizeof(b))
        return false;
    b[6] = (uint8_t)(0x40 | (b[6] & 0x0f));
    b[8] = (uint8_t)(0x80 | (b[8] & 0x3f));
    snprintf(n->hostid, sizeof(n->hostid),
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
    return true;
}

int snap_nvme_connect(struct snap_nvme *n)
{
    struct sw_nvme_error error;
    if (!draw_host(n))
        return -EIO;
    n->options.hostid = n->hostid;
    const enum sw_nvme_status status = sw_nvme_start(&n->options, &error, &n->controller);
    if (status) {
        n->controller = NULL;
        snap_medium_fail(&n->medium, -ENOTCONN, "%.100s: %s", n->medium.name, error.text);
        return n->medium.error;
    }
    n->phase = SNAP_NVME_CONNECTING;
    return 0;
}

void snap_nvme_disconnect(struct snap_nvme *n)
{
    if (!n->controller)
        return;
    if (n->queue)
        sw_nvme_queue_close(n->queue);
    n->queue = NULL;
    if (n->own_mem)
        sw_nvme_mem_release(n->own_mem);
    n->own_mem = NULL;
    for (uint32_t i = 0; i < n->memories.count; i++) {
        if (n->memories.of[i].registration)
            sw_nvme_mem_release(n->memories.of[i].registration);
        n->memories.of[i].registration = NULL;
    }
    sw_nvme_disconnect(n->controller);
    n->controller = NULL;
    n->is_asking = n->has_answer = n->is_beating = n->is_looking = false;
    n->phase = SNAP_NVME_DOWN;
    n->retry_ns = mover_now_ns() + RETRY_MS * NS_PER_MS;
    if (!n->down_ns)
        n->down_ns = mover_now_ns();
}

static int register_memories(struct snap_nvme *n)
{
    struct sw_nvme_mem *mem;
    if (sw_nvme_mem_register(n->controller, n->own, SNAP_NVME_OWN_BLOCKS * (size_t)SNAP_BLOCK_BYTES,
                             &n->own_mem))
        return -ENOMEM;
    for (uint32_t i = 0; i < n->memories.count; i++) {
        struct snap_memory *one = &n->memories.of[i];
        if (sw_nvme_mem_register(n->controller, one->data, one->bytes, &mem))
            return -ENOMEM;
        one->registration = mem;
    }
    return 0;
}

/* ---- commands of the phases ---- */

static void link_answered(void *argument, const struct sw_nvme_result *result)
{
    struct snap_nvme *n = argument;
    n->answer = *result;
    n->has_answer = true;
    n->is_asking = false;
}

/* A key is the beginning of the claim's ID, so that it stays the same over connections, and a mark:
 * who finds it knows that a writer of snapshots holds the namespace. */
static uint64_t claim_key_of(const struct snap_claim *claim)
{
    return (get_le64(claim->id) & KEY_ID_BITS) | KEY_MARK;
}

/* The key of the one that holds the namespace; 0: nobody, or `*is_unseen`: somebody that the report
 * had no room for. */
static uint64_t holder_of(const struct snap_nvme *n, bool *is_unseen)
{
    const struct nvme_resv_status *report =
        (const void *)(n->own + REPORT * (size_t)SNAP_BLOCK_BYTES);
    const uint32_t room = (SNAP_NVME_REPORT_BYTES - sizeof(*report)) / sizeof(*report->regctl_eds);
    const uint32_t count =
        mover_min_u32(report->regctl[0] | (uint32_t)report->regctl[1] << 8, room);
    *is_unseen = false;
    if (!report->rtype)
        return 0;
    for (uint32_t i = 0; i < count; i++)
        if (report->regctl_eds[i].rcsts & HOLDS)
            return le64toh(report->regctl_eds[i].rkey);
    *is_unseen = true;
    return 0;
}

uint64_t snap_nvme_unclaimed(const struct snap_nvme *n)
{
    bool is_unseen;
    const uint64_t holder = holder_of(n, &is_unseen);
    const bool is_writer = (holder & ~KEY_ID_BITS) == KEY_MARK;
    return is_writer && holder != claim_key_of(&n->found) ? holder : 0;
}

struct sw_nvme_io snap_nvme_report_io(struct snap_nvme *n, sw_nvme_done *done)
{
    struct sw_nvme_io io = snap_nvme_own_io(n, REPORT, 0, SNAP_BLOCK_BYTES, done);
    io.bytes = SNAP_NVME_REPORT_BYTES;
    return io;
}

static enum sw_nvme_status ask_to_reserve(struct snap_nvme *n)
{
    bool is_unseen;
    const uint64_t holder = holder_of(n, &is_unseen);
    const struct sw_nvme_io io = snap_nvme_own_io(n, KEYS, 0, SNAP_BLOCK_BYTES, link_answered);
    const struct sw_nvme_resv resv = {.action = holder ? SW_NVME_RESV_PREEMPT_ABORT
                                                       : SW_NVME_RESV_ACQUIRE,
                                      .type = SW_NVME_RESV_WRITE_EXCLUSIVE,
                                      .key = claim_key_of(&n->claim),
                                      .other = holder};
    return sw_nvme_resv_acquire(n->queue, &io, &resv);
}

static enum sw_nvme_status link_ask(struct snap_nvme *n)
{
    struct sw_nvme_io io = snap_nvme_own_io(n, KEYS, 0, SNAP_BLOCK_BYTES, link_answered);
    const struct sw_nvme_resv resv = {.other = claim_key_of(&n->claim)};
    switch (n->phase) {
    case SNAP_NVME_REGISTERING:
        return sw_nvme_resv_register(n->queue, &io, &resv);
    case SNAP_NVME_REPORTING:
        io = snap_nvme_report_io(n, link_answered);
        return sw_nvme_resv_report(n->queue, &io);
    case SNAP_NVME_RESERVING:
        return ask_to_reserve(n);
    case SNAP_NVME_READING_CLAIM:
        io = snap_nvme_own_io(n, CLAIM_IN, n->claim_at, SNAP_BLOCK_BYTES, link_answered);
        return sw_nvme_read(n->queue, &io);
    case SNAP_NVME_CLAIMING:
        snap_claim_encode(&n->claim, n->own);
        io = snap_nvme_own_io(n, CLAIM_OUT, n->claim_at, SNAP_BLOCK_BYTES, link_answered);
        return sw_nvme_write(n->queue, &io);
    case SNAP_NVME_FLUSHING_CLAIM:
        io.data = NULL;
        io.bytes = 0;
        return sw_nvme_flush(n->queue, &io);
    case SNAP_NVME_DOWN:
    case SNAP_NVME_CONNECTING:
    case SNAP_NVME_UP:
        break;
    }
    return SW_NVME_INVALID;
}

static void link_fence(struct snap_nvme *n, const char *by)
{
    snap_medium_fail(&n->medium, -ESTALE, "another writer has taken over %.100s%s%s",
                     n->medium.name, *by ? ": " : "", by);
}

static enum snap_nvme_phase after_report(struct snap_nvme *n)
{
    bool is_unseen;
    const uint64_t holder = holder_of(n, &is_unseen);
    n->was_free = !holder && !is_unseen;
    if (n->was_free || holder == claim_key_of(&n->claim))
        return SNAP_NVME_RESERVING;
    const bool is_dead = holder == claim_key_of(&n->found) || holder == n->orphan;
    if (n->takes && holder && (n->may_steal || is_dead))
        return SNAP_NVME_RESERVING;
    if (n->takes)
        snap_medium_fail(&n->medium, -EBUSY,
                         "%.100s: another host has its namespace reserved; sidewire nvme "
                         "resv-report shows it; take over, or let it release that",
                         n->medium.name);
    else
        link_fence(n, "");
    return n->phase;
}

static enum snap_nvme_phase after_claim(struct snap_nvme *n)
{
    struct snap_claim there;
    const bool is_claim = snap_claim_decode(n->own + CLAIM_IN * (size_t)SNAP_BLOCK_BYTES, &there);
    if (n->takes)
        return SNAP_NVME_CLAIMING;
    if (is_claim && snap_claim_is_of(&n->claim, &there))
        return SNAP_NVME_UP;
    link_fence(n, there.writer);
    return n->phase;
}

/* What follows a phase whose command went well. */
static enum snap_nvme_phase phase_after(struct snap_nvme *n)
{
    switch (n->phase) {
    case SNAP_NVME_REGISTERING:
        return SNAP_NVME_REPORTING;
    case SNAP_NVME_REPORTING:
        return after_report(n);
    case SNAP_NVME_RESERVING:
        return SNAP_NVME_READING_CLAIM;
    case SNAP_NVME_READING_CLAIM:
        return after_claim(n);
    case SNAP_NVME_CLAIMING:
        return SNAP_NVME_FLUSHING_CLAIM;
    case SNAP_NVME_FLUSHING_CLAIM:
        n->takes = false;
        return SNAP_NVME_UP;
    case SNAP_NVME_DOWN:
    case SNAP_NVME_CONNECTING:
    case SNAP_NVME_UP:
        break;
    }
    return n->phase;
}

/* Nobody held the namespace: its controller was started anew, and its disk may have lost what was
 * written and not flushed. */
static void link_is_up(struct snap_nvme *n)
{
    if (n->was_free && n->written != n->flushed)
        snap_medium_fail(&n->medium, -EIO,
                         "%.100s: the target was started anew before what was written to it was "
                         "flushed",
                         n->medium.name);
    n->down_ns = 0;
}

static void link_take_answer(struct snap_nvme *n)
{
    n->has_answer = false;
    const int code = snap_nvme_errno(&n->answer);
    if (code == -ESTALE && n->phase == SNAP_NVME_RESERVING) { /* another one was faster */
        n->phase = SNAP_NVME_REPORTING;
        return;
    }
    if (code == -EAGAIN) /* the connection is lost, and will be seen to be */
        return;
    if (code == -ESTALE)
        return link_fence(n, "");
    if (code) {
        snap_medium_fail(&n->medium, code, "%.100s: %s", n->medium.name,
                         n->answer.status == SW_NVME_FAILED
                             ? sw_nvme_code_text(n->answer.nvme_status)
                             : sw_nvme_status_text(n->answer.status));
        return;
    }
    n->phase = phase_after(n);
    if (n->phase == SNAP_NVME_UP)
        link_is_up(n);
}

static void link_connected(struct snap_nvme *n)
{
    struct sw_nvme_error error;
    const enum sw_nvme_status status =
        register_memories(n) ? SW_NVME_NO_MEMORY
                             : sw_nvme_queue_start(n->controller, 0, &error, &n->queue);
    if (status) {
        n->queue = NULL;
        snap_medium_fail(&n->medium, -ENOMEM, "%.100s: %s", n->medium.name,
                         sw_nvme_status_text(status));
        return;
    }
    n->phase = !n->medium.is_writable ? SNAP_NVME_UP
               : n->has_reservations  ? SNAP_NVME_REGISTERING
                                      : SNAP_NVME_READING_CLAIM;
    if (n->phase == SNAP_NVME_UP)
        link_is_up(n);
}

static void link_give_up_late(struct snap_nvme *n)
{
    if (n->down_ns && mover_now_ns() > n->down_ns + n->stall_ms * NS_PER_MS)
        snap_medium_fail(&n->medium, -ENOTCONN, "%.100s: it has not answered for %u ms",
                         n->medium.name, n->stall_ms);
}

void snap_nvme_step(struct snap_nvme *n)
{
    if (n->phase == SNAP_NVME_DOWN) {
        if (mover_now_ns() >= n->retry_ns)
            snap_nvme_connect(n);
        link_give_up_late(n);
        return;
    }
    const enum sw_nvme_state state = sw_nvme_poll(n->controller);
    if (n->queue)
        sw_nvme_queue_poll(n->queue);
    if (state == SW_NVME_LOST || state == SW_NVME_DEAD) {
        snap_nvme_disconnect(n);
        link_give_up_late(n);
        return;
    }
    if (n->phase == SNAP_NVME_CONNECTING && state == SW_NVME_LIVE)
        link_connected(n);
    link_give_up_late(n);
    if (n->has_answer)
        link_take_answer(n);
    if (n->medium.error || n->phase <= SNAP_NVME_CONNECTING || n->phase == SNAP_NVME_UP ||
        n->is_asking)
        return;
    n->is_asking = !link_ask(n);
}
