/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/medium/pmem.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "common/time/clock.h"

/* A writer that lives shows it in less than this: several beats. */
enum { SILENCE_MS = 2000, LOOK_MS = 50, LET_GO_MS = 300 };

static uint8_t *read_claim_block(struct snap_pmem *p)
{
    return p->own + SNAP_BLOCK_BYTES;
}

static uint64_t take_patience_ns(const struct snap_pmem *p)
{
    return sw_pmem_deadline_ms(p->options.connect_timeout_ms);
}

int snap_pmem_errno(enum sw_pmem_status status)
{
    switch (status) {
    case SW_PMEM_NO_MEMORY:
        return -ENOMEM;
    case SW_PMEM_DENIED:
        return -EACCES;
    case SW_PMEM_REFUSED:
        return -ECONNREFUSED;
    case SW_PMEM_NO_REGION:
        return -ENOENT;
    case SW_PMEM_ADDRESS:
        return -EHOSTUNREACH;
    case SW_PMEM_OTHER_REGION:
        return -ENODEV;
    case SW_PMEM_DISK_FAILED:
        return -EIO;
    case SW_PMEM_INVALID:
    case SW_PMEM_NOT_REGISTERED:
        return -EINVAL;
    case SW_PMEM_PROTOCOL:
        return -EPROTO;
    case SW_PMEM_UNSUPPORTED:
        return -EOPNOTSUPP;
    case SW_PMEM_CLOSED:
        return -ECANCELED;
    case SW_PMEM_FORKED:
        return -EPERM;
    case SW_PMEM_BUSY:
        return -EBUSY;
    case SW_PMEM_OK:
    case SW_PMEM_AGAIN:
    case SW_PMEM_TIMEOUT:
    case SW_PMEM_UNREACHABLE:
    case SW_PMEM_NOT_DONE:
    case SW_PMEM_MAYBE_DONE:
    case SW_PMEM_NEW_SESSION:
    case SW_PMEM_SYSTEM:
        break;
    }
    return -ENOTCONN;
}

static int fail_pmem(const struct snap_pmem *p, int code, const char *why, char *error,
                     size_t error_bytes)
{
    snprintf(error, error_bytes, "pmem:%.60s/%.60s: %s", p->place.address, p->place.name, why);
    return code;
}

static void end_handle(struct snap_pmem *p)
{
    if (p->pmem)
        sw_pmem_close(p->pmem); /* releases its memory, too */
    p->pmem = NULL;
    p->own_mem = NULL;
}

static int pmem_open_handle(struct snap_pmem *p, bool alone, char *error, size_t error_bytes)
{
    struct sw_pmem_error why = {.status = SW_PMEM_OK};
    end_handle(p);
    p->options.alone = alone;
    enum sw_pmem_status status = sw_pmem_open(&p->options, &why, &p->pmem);
    if (status)
        p->pmem = NULL;
    else
        status = sw_pmem_mem_register(p->pmem, p->own, SNAP_PMEM_OWN_BYTES, &p->own_mem);
    return status
               ? fail_pmem(p, snap_pmem_errno(status),
                           why.status ? why.text : sw_pmem_status_text(status), error, error_bytes)
               : 0;
}

/* What the region is, and what this client may do there. */
static int look_at_region(struct snap_pmem *p, bool writes, char *error, size_t error_bytes)
{
    struct sw_pmem_info info;
    const uint32_t rights = SW_PMEM_READ | (writes ? SW_PMEM_WRITE : 0);
    bool has_all = false;
    sw_pmem_info_of(p->pmem, &info);
    for (uint32_t i = 0; i < info.ranges_count; i++)
        has_all = has_all || (!info.ranges[i].offset && info.ranges[i].bytes == info.bytes &&
                              (info.ranges[i].rights & rights) == rights);
    if (!has_all)
        return fail_pmem(p, -EACCES, "this client has not the right to all of the region", error,
                         error_bytes);
    const uint64_t blocks = info.bytes / SNAP_BLOCK_BYTES;
    if (blocks < 4)
        return fail_pmem(p, -EINVAL, "the region is too small for a volume", error, error_bytes);
    p->claim_at = (blocks - 1) * SNAP_BLOCK_BYTES;
    p->medium.bytes = p->claim_at;
    p->is_persistent = info.persistent;
    p->medium.is_volatile = !info.persistent;
    if (!info.persistent)
        snprintf(p->medium.note, sizeof(p->medium.note), "%s", sw_pmem_promise(&info));
    return 0;
}

static int read_claim(struct snap_pmem *p, struct snap_claim *claim)
{
    const enum sw_pmem_status status =
        sw_pmem_read(p->pmem, p->claim_at, read_claim_block(p), SNAP_BLOCK_BYTES, p->own_mem,
                     take_patience_ns(p));
    if (status)
        return snap_pmem_errno(status);
    return snap_claim_decode(read_claim_block(p), claim) ? 0 : -EINVAL;
}

static int write_claim(struct snap_pmem *p, uint64_t deadline_ns)
{
    snap_claim_encode(&p->claim, p->own);
    struct sw_pmem *pmem = p->pmem;
    const enum sw_pmem_status status =
        p->is_persistent
            ? sw_pmem_write_flush(pmem, p->claim_at, p->own, SNAP_BLOCK_BYTES, p->own_mem,
                                  SW_PMEM_FLUSH_PERSISTENT, deadline_ns)
            : sw_pmem_write(pmem, p->claim_at, p->own, SNAP_BLOCK_BYTES, p->own_mem, deadline_ns);
    return status ? snap_pmem_errno(status) : 0;
}

/* Somebody has the region open with the right to write, beside this handle. */
static bool has_other_writers(struct snap_pmem *p)
{
    struct sw_pmem_server_info info;
    struct sw_pmem_info region;
    sw_pmem_info_of(p->pmem, &region);
    if (sw_pmem_server(&p->options, &info, NULL))
        return true;
    for (uint32_t i = 0; i < info.regions_count && i < SW_PMEM_REGIONS_MAX; i++)
        if (!strcmp(info.regions[i].name, region.name))
            return info.regions[i].writers > 1;
    return true;
}

/* One that was stopped, or cut off, has no beats. It is fenced without being asked, too. */
static int refuse_living(struct snap_pmem *p, const struct snap_claim *before, char *error,
                         size_t error_bytes)
{
    struct snap_claim now = *before;
    char why[192];
    int code = 0;
    for (uint32_t waited_ms = 0; !code && waited_ms < SILENCE_MS; waited_ms += LOOK_MS) {
        if (!now.is_torn && now.beat != before->beat && !before->is_torn)
            break;
        poll(NULL, 0, LOOK_MS);
        code = read_claim(p, &now);
    }
    if (code || !now.is_held || (!now.is_torn && now.beat == before->beat))
        return code;
    snprintf(why, sizeof(why), "%s writes to it; stop that one, or take over", now.writer);
    return fail_pmem(p, -EBUSY, why, error, error_bytes);
}

static int take_claim(struct snap_pmem *p, const char *writer, char *error, size_t error_bytes)
{
    const uint64_t deadline_ns = take_patience_ns(p);
    struct snap_claim before, after;
    for (;;) {
        int code = pmem_open_handle(p, true, error, error_bytes);
        if (code)
            return code;
        code = read_claim(p, &before);
        if (!code && !snap_claim_follow(&before, writer, &p->claim))
            code = -EIO;
        if (!code)
            code = write_claim(p, take_patience_ns(p));
        /* Sessions that have come since the first time, and may have read the older claim, end. */
        if (!code)
            code = pmem_open_handle(p, true, error, error_bytes);
        if (!code)
            code = read_claim(p, &after);
        if (!code && snap_claim_is_of(&p->claim, &after))
            return 0;
        if (!code && !after.is_torn && after.epoch > p->claim.epoch)
            return fail_pmem(p, -EBUSY, "another writer has just taken over", error, error_bytes);
        if (mover_now_ns() >= deadline_ns)
            return fail_pmem(p, code ? code : -EBUSY, "it could not be claimed in time", error,
                             error_bytes);
        poll(NULL, 0, LOOK_MS);
    }
}

static int find_first_blocks(struct snap_pmem *p, char *error, size_t error_bytes)
{
    uint8_t *first = p->own + 2 * SNAP_BLOCK_BYTES;
    static const uint8_t zeroes[2 * SNAP_BLOCK_BYTES];
    const enum sw_pmem_status status =
        sw_pmem_read(p->pmem, 0, first, sizeof(zeroes), p->own_mem, take_patience_ns(p));
    if (status)
        return fail_pmem(p, snap_pmem_errno(status), sw_pmem_status_text(status), error,
                         error_bytes);
    p->medium.is_new = !memcmp(first, zeroes, sizeof(zeroes));
    return 0;
}

int snap_pmem_take(struct snap_pmem *p, const struct snap_medium_options *options, char *error,
                   size_t error_bytes)
{
    struct snap_claim found;
    int code = pmem_open_handle(p, false, error, error_bytes);
    if (!code)
        code = look_at_region(p, options->is_writable, error, error_bytes);
    if (code || !options->is_writable)
        return code;
    code = read_claim(p, &found);
    if (code == -EINVAL)
        return fail_pmem(p, code,
                         "its last block is neither zero nor a writer's: the region has "
                         "other data; give it one of its own",
                         error, error_bytes);
    if (code)
        return fail_pmem(p, code, "it does not answer", error, error_bytes);
    if (found.is_held && !options->take_over && has_other_writers(p))
        code = refuse_living(p, &found, error, error_bytes);
    if (!code)
        code = take_claim(p, options->writer, error, error_bytes);
    if (!code)
        code = find_first_blocks(p, error, error_bytes);
    p->medium.epoch = p->claim.epoch;
    p->session = code ? 0 : sw_pmem_session(p->pmem);
    return code;
}

void snap_pmem_let_go(struct snap_pmem *p)
{
    if (!p->pmem || !p->session || sw_pmem_session(p->pmem) != p->session ||
        sw_pmem_state_of(p->pmem) != SW_PMEM_LIVE || sw_pmem_used(p->pmem))
        return;
    p->claim.is_held = false;
    write_claim(p, sw_pmem_deadline_ms(LET_GO_MS));
}
