/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes: their records, the room for them, and their answers. */
#include <string.h>

#include <nvme/types.h>

#include "common/base/minmax.h"
#include "nvme/target/tier/cache.h"
#include "nvme/target/tier/inside.h"
#include "nvme/wire/fabrics.h"

enum {
    RESERVE_BYTES = 64 << 10, /* of the ring, for records that say who writes */
    RECORDS_MAX = 64,         /* of one operation */
};

static uint8_t *stage_at(const struct nvt_tier *tier, uint64_t position)
{
    return tier->stage + (position & (tier->super.stage_bytes - 1));
}

/* A record's payload may go around the end of the stage. */
static void stage_write(struct nvt_tier *tier, uint64_t position, const uint8_t *data,
                        uint32_t bytes)
{
    const uint64_t at = position & (tier->super.stage_bytes - 1);
    const uint32_t first = (uint32_t)mover_min_u64(bytes, tier->super.stage_bytes - at);
    if (data) {
        memcpy(tier->stage + at, data, first);
        memcpy(tier->stage, data + first, bytes - first);
    } else {
        memset(tier->stage + at, 0, first);
        memset(tier->stage, 0, bytes - first);
    }
}

static void append_stage_record(struct nvt_tier *tier, struct nvt_tier_record *record,
                                const uint8_t *data)
{
    const uint32_t bytes = record->payload_bytes;
    record->position = tier->end;
    record->epoch = tier->epoch;
    record->before = tier->end_check;
    if (bytes) {
        record->payload_sum = nvt_tier_sum(0, data, bytes);
        stage_write(tier, tier->end + NVT_TIER_HEAD_BYTES, data, bytes);
    }
    if (bytes % 64)
        stage_write(tier, tier->end + NVT_TIER_HEAD_BYTES + bytes, NULL, 64 - bytes % 64);
    nvt_tier_record_encode(&tier->super, record, stage_at(tier, tier->end));
    tier->end += nvt_tier_record_bytes(bytes);
    tier->end_check = record->check;
    const struct nvt_tier_mark mark = {tier->end, record->check, tier->epoch, tier->now_ns};
    nvt_tier_destage_note(&tier->destage, &mark);
}

void nvt_tier_append_begin(struct nvt_tier *tier)
{
    struct nvt_tier_record record = {.kind = NVT_TIER_BEGIN};
    append_stage_record(tier, &record, NULL);
}

bool nvt_tier_is_short(const struct nvt_tier *tier)
{
    const uint64_t most = nvt_tier_record_bytes(NVT_TIER_PAYLOAD_MAX);
    return tier->end + most - tier->head > tier->super.ring_bytes - RESERVE_BYTES ||
           nvt_tier_index_left(&tier->index) <
               tier->index.nodes_max / 2 + tier->promised + 2 * RECORDS_MAX;
}

static bool append_has_room(const struct nvt_tier *tier, uint64_t bytes)
{
    return tier->end + bytes - tier->head <= tier->super.ring_bytes - RESERVE_BYTES &&
           tier->end + bytes - nvt_tier_copies_slowest(tier) <= tier->super.stage_bytes;
}

static enum nvt_tier_kind record_kind_of(const struct nvt_io *io)
{
    return io->kind == NVT_WRITE                           ? NVT_TIER_WRITE
           : io->kind == NVT_DEALLOCATE || io->deallocates ? NVT_TIER_DEALLOCATE
                                                           : NVT_TIER_ZEROES;
}

static uint32_t records_of(const struct nvt_io *io)
{
    return io->kind == NVT_WRITE
               ? (uint32_t)((io->len_bytes + NVT_TIER_PAYLOAD_MAX - 1) / NVT_TIER_PAYLOAD_MAX)
               : 1;
}

/* False: there is no room for the next record. */
static bool append_next(struct nvt_tier_op *op)
{
    struct nvt_tier *tier = op->tier;
    const struct nvt_io *io = op->io;
    const uint64_t left = io->len_bytes - op->cursor;
    const bool is_write = io->kind == NVT_WRITE;
    const uint64_t bytes = is_write ? mover_min_u64(left, NVT_TIER_PAYLOAD_MAX) : left;
    const uint32_t payload = is_write ? (uint32_t)bytes : 0;
    if (!append_has_room(tier, nvt_tier_record_bytes(payload)))
        return false;
    struct nvt_tier_record record = {.kind = record_kind_of(io),
                                     .payload_bytes = payload,
                                     .offset = io->offset + op->cursor,
                                     .len_bytes = bytes};
    append_stage_record(tier, &record, is_write ? io->data + op->cursor : NULL);
    op->cursor += bytes;
    return true;
}

/* True: all of it is in the log, or it has failed. */
static bool append_op(struct nvt_tier_op *op)
{
    struct nvt_tier *tier = op->tier;
    const uint32_t extents = 2 * records_of(op->io);
    if (!op->cursor) {
        if (nvt_tier_index_left(&tier->index) <
            tier->index.nodes_max / 2 + tier->promised + extents) /* a walk may need the rest */
            return false;
        if (!append_has_room(
                tier, nvt_tier_record_bytes(
                          op->io->kind == NVT_WRITE
                              ? (uint32_t)mover_min_u64(op->io->len_bytes, NVT_TIER_PAYLOAD_MAX)
                              : 0)))
            return false;
        tier->promised += extents;
        op->extents = extents;
        op->first = tier->end;
        op->kind = record_kind_of(op->io);
        op->offset = op->io->offset;
        op->len_bytes = op->io->len_bytes;
    }
    while (op->cursor < op->io->len_bytes)
        if (!append_next(op))
            return false;
    op->end = tier->end;
    op->end_check = tier->end_check;
    list_append(&tier->logging, &op->node);
    return true;
}

void nvt_tier_append(struct nvt_tier_op *op)
{
    struct nvt_tier *tier = op->tier;
    if (tier->phase == NVT_TIER_FAILED)
        return nvt_tier_op_end(op, NVF_MEDIA(NVME_SC_WRITE_FAULT));
    if (!op->io->len_bytes)
        return nvt_tier_op_end(op, 0);
    if (tier->phase != NVT_TIER_SERVING || !list_is_empty(&tier->waiting) || !append_op(op)) {
        tier->counts.waits += tier->phase == NVT_TIER_SERVING;
        list_append(&tier->waiting, &op->node);
        nvt_tier_flow(tier);
    }
    nvt_tier_note_write(tier, op->io->uring);
    nvt_tier_copies_kick(tier);
}

static void read_again(struct nvt_tier_op *op)
{
    list_remove(&op->node);
    nvt_tier_read(op);
}

static void let_waiting_go_on(struct nvt_tier *tier)
{
    for (struct list_node *node; (node = list_first(&tier->waiting));) {
        struct nvt_tier_op *op = LIST_MEMBER(node, struct nvt_tier_op, node);
        if (op->io->kind == NVT_READ || op->io->kind == NVT_VERIFY) {
            read_again(op);
            continue;
        }
        list_remove(node);
        if (tier->phase == NVT_TIER_FAILED) {
            nvt_tier_op_end(op, NVF_MEDIA(NVME_SC_WRITE_FAULT));
        } else if (!append_op(op)) {
            list_insert_behind(&tier->waiting.head, node);
            break;
        }
    }
}

/* Copies in memory answer at once, and what was answered makes room. */
void nvt_tier_go_on(struct nvt_tier *tier)
{
    if (tier->phase == NVT_TIER_WALKING)
        return;
    tier->has_more = true;
    if (tier->is_going_on)
        return;
    tier->is_going_on = true;
    while (tier->has_more) {
        tier->has_more = false;
        let_waiting_go_on(tier);
        nvt_tier_copies_kick(tier);
    }
    tier->is_going_on = false;
}

/* What the log has of an operation is what is to be found from now on. */
static void index_op(struct nvt_tier_op *op)
{
    struct nvt_tier *tier = op->tier;
    struct nvt_tier_extent extent = {.kind = op->kind, .position = op->first, .offset = op->offset};
    const uint64_t end = op->offset + op->len_bytes;
    const bool is_write = op->kind == NVT_TIER_WRITE;
    while (extent.offset < end) {
        const uint64_t left = end - extent.offset;
        extent.len_bytes = is_write ? mover_min_u64(left, NVT_TIER_PAYLOAD_MAX) : left;
        extent.payload_bytes = is_write ? (uint32_t)extent.len_bytes : 0;
        nvt_tier_index_put(&tier->index, &extent);
        extent.position += nvt_tier_record_bytes(is_write ? (uint32_t)extent.len_bytes : 0);
        extent.offset += extent.len_bytes;
    }
    tier->promised -= op->extents;
    tier->answered =
        (struct nvt_tier_mark){.position = op->end, .check = op->end_check, .epoch = tier->epoch};
    if (tier->cache)
        nvt_tier_cache_forget(tier->cache, op->offset, op->len_bytes);
}

void nvt_tier_index_answered(struct nvt_tier *tier)
{
    for (struct list_node *node; (node = list_first(&tier->answering));) {
        struct nvt_tier_op *op = LIST_MEMBER(node, struct nvt_tier_op, node);
        list_remove(node);
        index_op(op);
        op->next = tier->spare_ops;
        tier->spare_ops = op;
    }
}

/* The host has its answer first: the index is searched while it thinks of the next write. */
static void answer_op(struct nvt_tier_op *op)
{
    struct nvt_tier *tier = op->tier;
    list_append(&tier->answering, &op->node);
    nvt_tier_io_end(tier, op->io, 0);
}

void nvt_tier_answer(struct nvt_tier *tier)
{
    for (struct list_node *node; (node = list_first(&tier->logging));) {
        struct nvt_tier_op *op = LIST_MEMBER(node, struct nvt_tier_op, node);
        if (op->end > tier->acked)
            break;
        list_remove(node);
        answer_op(op);
    }
    if (tier->destage.step == NVT_TIER_IDLE &&
        tier->end - tier->head >= tier->super.ring_bytes / NVT_TIER_EASY_OF_RING)
        nvt_tier_flow(tier);
}

void nvt_tier_end_logging(struct nvt_tier *tier)
{
    for (struct list_node *node; (node = list_first(&tier->logging));) {
        list_remove(node);
        nvt_tier_op_end(LIST_MEMBER(node, struct nvt_tier_op, node),
                        NVF_MEDIA(NVME_SC_WRITE_FAULT));
    }
}

void nvt_tier_end_unwanted(struct nvt_tier *tier)
{
    struct list_node *next;
    for (struct list_node *node = list_first(&tier->waiting); node; node = next) {
        struct nvt_tier_op *op = LIST_MEMBER(node, struct nvt_tier_op, node);
        next = list_after(&tier->waiting, node);
        const uint16_t status = op->io->given_up ? op->io->given_up(op->io) : 0;
        if (!status || op->cursor)
            continue; /* a part of it is in the log */
        list_remove(node);
        nvt_tier_op_end(op, status);
    }
}
