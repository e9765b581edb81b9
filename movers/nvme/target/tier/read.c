/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads: FILE gives what it has, and what is newer in the log is laid over it. A reader is counted
 * while it may know places of the log (destage.h).
 */
#include <string.h>

#include <nvme/types.h>

#include "common/base/minmax.h"
#include "nvme/target/tier/cache.h"
#include "nvme/target/tier/inside.h"
#include "nvme/wire/fabrics.h"

enum { PARTS_MAX = 8, SCAN_MAX = 256 };

static void read_end(struct nvt_tier_op *op)
{
    struct nvt_tier *tier = op->tier;
    const bool was_reader = op->is_reader;
    if (was_reader)
        tier->readers[op->parity]--;
    nvt_tier_op_end(op, op->status);
    if (was_reader)
        nvt_tier_flow(tier);
}

static void lay_over(struct nvt_tier_op *op);

static void lower_done(struct nvt_io *lower, uint16_t status)
{
    struct nvt_tier_op *op = LIST_MEMBER(lower, struct nvt_tier_op, lower);
    struct nvt_tier *tier = op->tier;
    struct nvt_tier_turn turn;
    nvt_tier_enter(tier, &turn, lower->uring);
    op->status = status;
    if (!status && !op->is_reader && op->io->kind == NVT_READ && tier->cache)
        nvt_tier_cache_fill(tier->cache, op->io->offset, op->io->len_bytes, op->io->data,
                            op->version);
    op->has_file = true;
    if (op->is_reader && !status)
        lay_over(op);
    else
        read_end(op);
    nvt_tier_leave(tier);
}

static void ask_file(struct nvt_tier_op *op)
{
    const struct nvt_io *io = op->io;
    op->cursor = 0;
    op->lower = (struct nvt_io){.kind = io->kind,
                                .offset = io->offset,
                                .len_bytes = io->len_bytes,
                                .data = io->data,
                                .slices = io->slices,
                                .address = io->address,
                                .host = io->host,
                                .done = lower_done};
    if (op->tier->cache)
        op->version = nvt_tier_cache_version(op->tier->cache);
    nvt_tier_ask_file(op->tier, &op->lower);
}

static void read_part_done(struct nvt_tier_fetch *fetch, int result)
{
    struct nvt_tier_op *op = fetch->part.op;
    nvt_tier_fetch_give(fetch);
    op->parts_left--;
    if (result)
        op->status = NVF_MEDIA(NVME_SC_READ_ERROR);
    if (!op->is_laying)
        lay_over(op);
}

static void fetch_part(struct nvt_tier_op *op, const struct nvt_tier_extent *extent, uint64_t skip,
                       uint8_t *to, uint32_t bytes)
{
    struct nvt_tier *tier = op->tier;
    const uint32_t skip_bytes = extent->skip_bytes + (uint32_t)skip;
    const struct nvt_tier_part part = {.extent = *extent,
                                       .skip_bytes = skip_bytes,
                                       .bytes = bytes,
                                       .to = to,
                                       .op = op,
                                       .done = read_part_done};
    tier->counts.log_reads++;
    if (nvt_tier_stage_read(tier, extent->position + NVT_TIER_HEAD_BYTES + skip_bytes, to, bytes))
        return;
    op->parts_left++;
    if (nvt_tier_fetch_record(tier, &part))
        return;
    op->parts_left--;
    op->status = NVME_SC_INTERNAL;
}

/* The next extent of the log. False: FILE has to be asked, since what was there has gone to it. */
static bool lay_next(struct nvt_tier_op *op)
{
    const struct nvt_io *io = op->io;
    const uint64_t at = io->offset + op->cursor, end = io->offset + io->len_bytes;
    struct nvt_tier_extent extent;
    if (!nvt_tier_index_next(&op->tier->index, at, &extent) || extent.offset >= end)
        extent = (struct nvt_tier_extent){.offset = end};
    if (extent.offset > at) {
        op->cursor = extent.offset - io->offset;
        return op->has_file;
    }
    const uint64_t skip = at - extent.offset;
    const uint64_t bytes = mover_min_u64(extent.len_bytes - skip, end - at);
    uint8_t *to = io->data + op->cursor;
    op->cursor += bytes;
    if (extent.kind == NVT_TIER_WRITE)
        fetch_part(op, &extent, skip, to, (uint32_t)bytes);
    else
        memset(to, 0, bytes);
    return true;
}

static void lay_over(struct nvt_tier_op *op)
{
    op->is_laying = true; /* media in memory answer at once */
    while (op->cursor < op->io->len_bytes && op->parts_left < PARTS_MAX && !op->wants_file &&
           !op->status)
        op->wants_file = !lay_next(op);
    op->is_laying = false;
    if (op->parts_left)
        return;
    if (op->wants_file && !op->status) {
        op->wants_file = false;
        return ask_file(op);
    }
    if (op->cursor == op->io->len_bytes || op->status)
        read_end(op);
}

/* All of it is in the log, as far as is easy to say. */
static bool is_covered(const struct nvt_tier *tier, uint64_t at, uint64_t end)
{
    struct nvt_tier_extent extent;
    for (int i = 0; i < SCAN_MAX && at < end; i++) {
        if (!nvt_tier_index_next(&tier->index, at, &extent) || extent.offset > at)
            return false;
        at = extent.offset + extent.len_bytes;
    }
    return at >= end;
}

void nvt_tier_read(struct nvt_tier_op *op)
{
    struct nvt_tier *tier = op->tier;
    const struct nvt_io *io = op->io;
    const uint64_t end = io->offset + io->len_bytes;
    struct nvt_tier_extent extent;
    if (tier->phase == NVT_TIER_WALKING)
        return list_append(&tier->waiting, &op->node);
    if (tier->walk) { /* what is in the log is not known */
        op->status = NVF_MEDIA(NVME_SC_READ_ERROR);
        return read_end(op);
    }
    if (io->kind == NVT_VERIFY)
        return ask_file(op);
    if (!nvt_tier_index_next(&tier->index, io->offset, &extent) || extent.offset >= end) {
        if (tier->cache && nvt_tier_cache_read(tier->cache, io->offset, io->len_bytes, io->data))
            return read_end(op);
        return ask_file(op);
    }
    op->is_reader = true;
    op->parity = tier->parity;
    tier->readers[op->parity]++;
    if (is_covered(tier, io->offset, end))
        lay_over(op);
    else
        ask_file(op);
}
