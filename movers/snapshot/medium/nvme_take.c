/* SPDX-License-Identifier: BSD-2-Clause */
/* How a namespace is opened: what it is, who writes to it, and becoming its writer. It blocks. */
#include "snapshot/medium/nvme.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <nvme/types.h>

#include "common/base/minmax.h"
#include "common/time/clock.h"

/* A writer that lives shows it in less than this: several beats. */
enum { SILENCE_MS = 2000, LOOK_MS = 50, LET_GO_MS = 300, CLAIM_IN = 1, FIRST = 2, KEYS = 4 };

static int fail_nvme(const struct snap_nvme *n, int code, char *error, size_t error_bytes,
                     const char *format, ...)
{
    char why[256];
    va_list values;
    va_start(values, format);
    vsnprintf(why, sizeof(why), format, values);
    va_end(values);
    snprintf(error, error_bytes, "%.127s: %s", n->medium.name, why);
    return code;
}

static int tell_nvme_failure(const struct snap_nvme *n, char *error, size_t error_bytes)
{
    snprintf(error, error_bytes, "%s", n->medium.why);
    return n->medium.error;
}

/* ---- what it is ---- */

static enum sw_nvme_status find_nsid(struct snap_nvme *n, uint32_t *count)
{
    struct sw_nvme_result result = {.status = SW_NVME_OK};
    uint32_t nsids[2];
    *count = 1;
    if (n->nsid)
        return SW_NVME_OK;
    const enum sw_nvme_status status = sw_nvme_list(n->controller, 0, nsids, 2, count, &result);
    if (!status && *count)
        n->nsid = nsids[0];
    return status;
}

static int measure_namespace(struct snap_nvme *n, char *error, size_t error_bytes)
{
    struct sw_nvme_namespace ns;
    struct sw_nvme_result result = {.status = SW_NVME_OK};
    struct sw_nvme_info info;
    _Alignas(struct nvme_id_ns) uint8_t id[SNAP_BLOCK_BYTES];
    sw_nvme_info_of(n->controller, &info);
    if (sw_nvme_namespace_of(n->controller, n->nsid, &ns, &result) ||
        sw_nvme_identify(n->controller, NVME_IDENTIFY_CNS_NS, n->nsid, id, &result))
        return fail_nvme(n, -ENOENT, error, error_bytes, "it has no namespace %u", n->nsid);
    if (ns.metadata_bytes || ns.block_bytes > SNAP_BLOCK_BYTES || SNAP_BLOCK_BYTES % ns.block_bytes)
        return fail_nvme(n, -EOPNOTSUPP, error, error_bytes,
                         "its blocks have %u bytes and %u of metadata: a volume needs at most "
                         "%d, and no metadata",
                         ns.block_bytes, ns.metadata_bytes, SNAP_BLOCK_BYTES);
    const uint64_t blocks = ns.blocks / (SNAP_BLOCK_BYTES / ns.block_bytes);
    if (blocks < 4)
        return fail_nvme(n, -EINVAL, error, error_bytes, "it is too small for a volume");
    n->block_bytes = ns.block_bytes;
    n->has_reservations = ((const struct nvme_id_ns *)(const void *)id)->rescap & 1 << 1;
    n->part_bytes = mover_min_u32(info.transfer_max_bytes, SNAP_IO_BYTES_MAX);
    n->part_bytes -= n->part_bytes % SNAP_BLOCK_BYTES;
    n->claim_at = (blocks - 1) * SNAP_BLOCK_BYTES;
    n->medium.bytes = n->claim_at;
    if (!n->has_reservations)
        snprintf(n->medium.note, sizeof(n->medium.note),
                 "it has no reservations: an older writer that was stopped may write once more "
                 "before it sees that another one has taken over");
    return n->part_bytes
               ? 0
               : fail_nvme(n, -EOPNOTSUPP, error, error_bytes,
                           "it takes less than a block of %d bytes at a time", SNAP_BLOCK_BYTES);
}

int snap_nvme_look(struct snap_nvme *n, char *error, size_t error_bytes)
{
    struct sw_nvme_error why;
    uint32_t count;
    if (snap_nvme_connect(n))
        return tell_nvme_failure(n, error, error_bytes);
    const enum sw_nvme_status status =
        sw_nvme_wait_live(n->controller, sw_nvme_deadline_ms(n->options.connect_timeout_ms));
    sw_nvme_last_error(n->controller, &why);
    if (status) {
        const struct sw_nvme_result result = {.status = status};
        return fail_nvme(n, status == SW_NVME_FAILED ? -ECONNREFUSED : snap_nvme_errno(&result),
                         error, error_bytes, "%s",
                         why.status ? why.text : sw_nvme_status_text(status));
    }
    if (find_nsid(n, &count))
        return fail_nvme(n, -EIO, error, error_bytes, "it does not list its namespaces");
    if (count != 1)
        return fail_nvme(n, -EINVAL, error, error_bytes,
                         count ? "it has several namespaces: name one, .../NQN/NSID"
                               : "it has no namespace");
    return measure_namespace(n, error, error_bytes);
}

/* ---- who writes ---- */

/* A command that was sent with that status, alone; waits. */
static int await_own(struct snap_nvme *n, enum sw_nvme_status sent, uint32_t within_ms)
{
    struct sw_nvme_result result = {.status = sent};
    const uint64_t deadline_ns = sw_nvme_deadline_ms(within_ms);
    while (!result.status) {
        result.status = sw_nvme_queue_wait(n->queue, deadline_ns);
        if (!result.status && sw_nvme_queue_take(n->queue, &result, 1))
            break;
    }
    const int code = snap_nvme_errno(&result);
    return code == -EAGAIN ? -ENOTCONN : code;
}

static int read_found(struct snap_nvme *n)
{
    const struct sw_nvme_io io = snap_nvme_own_io(n, CLAIM_IN, n->claim_at, SNAP_BLOCK_BYTES, NULL);
    const int code = await_own(n, sw_nvme_read(n->queue, &io), n->options.connect_timeout_ms);
    if (code)
        return code;
    return snap_claim_decode(n->own + SNAP_BLOCK_BYTES, &n->found) ? 0 : -EINVAL;
}

static int nvme_refuse_living(struct snap_nvme *n, char *error, size_t error_bytes)
{
    const struct snap_claim before = n->found;
    int code = 0;
    for (uint32_t waited_ms = 0; !code && waited_ms < SILENCE_MS; waited_ms += LOOK_MS) {
        if (!n->found.is_torn && !before.is_torn && n->found.beat != before.beat)
            break;
        poll(NULL, 0, LOOK_MS);
        code = read_found(n);
        sw_nvme_poll(n->controller);
    }
    if (code)
        return fail_nvme(n, code, error, error_bytes, "it does not answer");
    if (!n->found.is_held || (!n->found.is_torn && n->found.beat == before.beat))
        return 0;
    return fail_nvme(n, -EBUSY, error, error_bytes, "%s writes to it; stop that one, or take over",
                     n->found.writer);
}

/* A writer that was killed between its reservation and its claim holds it with a key that
 * no claim has. One that lives writes its claim in less than SILENCE_MS. */
static int nvme_find_orphan(struct snap_nvme *n, char *error, size_t error_bytes)
{
    const struct snap_claim before = n->found;
    uint64_t first = 0;
    for (uint32_t waited_ms = 0; waited_ms < SILENCE_MS; waited_ms += LOOK_MS) {
        const struct sw_nvme_io io = snap_nvme_report_io(n, NULL);
        int code = await_own(n, sw_nvme_resv_report(n->queue, &io), n->options.connect_timeout_ms);
        if (!code)
            code = read_found(n);
        if (code)
            return fail_nvme(n, code, error, error_bytes, "it does not answer");
        const uint64_t holder = snap_nvme_unclaimed(n);
        if (memcmp(before.id, n->found.id, sizeof(before.id)) != 0 || (first && holder != first))
            return fail_nvme(n, -EBUSY, error, error_bytes, "another writer has just taken it");
        if (!holder)
            return 0;
        first = holder;
        poll(NULL, 0, LOOK_MS);
        sw_nvme_poll(n->controller);
    }
    n->orphan = first;
    return 0;
}

static int find_zeroes_there(struct snap_nvme *n)
{
    static const uint8_t zeroes[2 * SNAP_BLOCK_BYTES];
    const struct sw_nvme_io io = snap_nvme_own_io(n, FIRST, 0, sizeof(zeroes), NULL);
    const int code = await_own(n, sw_nvme_read(n->queue, &io), n->options.connect_timeout_ms);
    n->medium.is_new =
        !code && !memcmp(n->own + FIRST * (size_t)SNAP_BLOCK_BYTES, zeroes, sizeof(zeroes));
    return code;
}

/* Goes through the phases that each connection has. */
static int await_up(struct snap_nvme *n, char *error, size_t error_bytes)
{
    const uint64_t deadline_ns = sw_nvme_deadline_ms(n->options.connect_timeout_ms);
    while (n->phase != SNAP_NVME_UP && !n->medium.error && mover_now_ns() < deadline_ns) {
        snap_nvme_step(n);
        if (n->queue && n->is_asking)
            sw_nvme_queue_wait(n->queue, sw_nvme_deadline_ms(1));
        else
            poll(NULL, 0, n->phase == SNAP_NVME_DOWN);
    }
    if (n->medium.error)
        return tell_nvme_failure(n, error, error_bytes);
    return n->phase == SNAP_NVME_UP
               ? 0
               : fail_nvme(n, -ETIMEDOUT, error, error_bytes, "it could not be claimed in %u ms",
                           n->options.connect_timeout_ms);
}

static int take_to_write(struct snap_nvme *n, const struct snap_medium_options *options,
                         char *error, size_t error_bytes)
{
    int code = read_found(n);
    if (code == -EINVAL)
        return fail_nvme(n, code, error, error_bytes,
                         "its last block is neither zero nor a writer's: the namespace has other "
                         "data; give it one of its own");
    if (code)
        return fail_nvme(n, code, error, error_bytes, "it does not answer");
    if (n->found.is_held && !options->take_over)
        code = nvme_refuse_living(n, error, error_bytes);
    if (!code && n->has_reservations && !options->take_over)
        code = nvme_find_orphan(n, error, error_bytes);
    if (code)
        return code;
    if (!snap_claim_follow(&n->found, options->writer, &n->claim))
        return fail_nvme(n, -EIO, error, error_bytes, "there are no random bytes");
    n->takes = true;
    n->may_steal = options->take_over;
    n->phase = n->has_reservations ? SNAP_NVME_REGISTERING : SNAP_NVME_READING_CLAIM;
    code = await_up(n, error, error_bytes);
    n->medium.epoch = n->claim.epoch;
    return code;
}

int snap_nvme_take(struct snap_nvme *n, const struct snap_medium_options *options, char *error,
                   size_t error_bytes)
{
    /* Up as a reader at first. */
    n->medium.is_writable = false;
    int code = await_up(n, error, error_bytes);
    n->medium.is_writable = options->is_writable;
    if (!code && options->is_writable)
        code = take_to_write(n, options, error, error_bytes);
    if (!code && options->is_writable && (code = find_zeroes_there(n)))
        fail_nvme(n, code, error, error_bytes, "it does not answer");
    return code;
}

void snap_nvme_let_go(struct snap_nvme *n)
{
    const uint64_t deadline_ns = sw_nvme_deadline_ms(LET_GO_MS);
    while ((n->is_beating || n->is_looking) && !sw_nvme_queue_wait(n->queue, deadline_ns))
        sw_nvme_queue_poll(n->queue);
    if (!n->medium.is_writable || n->parts || n->is_beating || n->is_looking)
        return;
    n->claim.is_held = false;
    snap_claim_encode(&n->claim, n->own);
    struct sw_nvme_io io = snap_nvme_own_io(n, 0, n->claim_at, SNAP_BLOCK_BYTES, NULL);
    if (await_own(n, sw_nvme_write(n->queue, &io), LET_GO_MS) || !n->has_reservations)
        return;
    io = snap_nvme_own_io(n, KEYS, 0, SNAP_BLOCK_BYTES, NULL);
    const struct sw_nvme_resv resv = {.action = SW_NVME_RESV_UNREGISTER, .ignores_key = true};
    if (!sw_nvme_resv_register(n->queue, &io, &resv))
        sw_nvme_queue_wait(n->queue, sw_nvme_deadline_ms(LET_GO_MS));
}
