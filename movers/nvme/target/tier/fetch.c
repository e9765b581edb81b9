/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads of the log, from a copy that has what is asked for; where one fails the next is asked. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/minmax.h"
#include "nvme/target/tier/inside.h"

static bool has_place(struct nvt_tier_fetch *fetch, uint32_t bytes)
{
    if (bytes <= fetch->place_bytes)
        return true;
    free(fetch->place);
    fetch->place = malloc(bytes);
    fetch->place_bytes = fetch->place ? bytes : 0;
    return fetch->place;
}

struct nvt_tier_fetch *nvt_tier_fetch_take(struct nvt_tier *tier, uint32_t place_bytes)
{
    struct nvt_tier_fetch *fetch = tier->spare_fetches;
    if (fetch)
        tier->spare_fetches = fetch->next;
    else if (!(fetch = calloc(1, sizeof(*fetch))))
        return NULL;
    else {
        fetch->all = tier->fetches;
        tier->fetches = fetch;
    }
    if (!has_place(fetch, place_bytes)) {
        fetch->tier = tier;
        nvt_tier_fetch_give(fetch);
        return NULL;
    }
    *fetch = (struct nvt_tier_fetch){.all = fetch->all,
                                     .tier = tier,
                                     .copy = -1,
                                     .place = fetch->place,
                                     .place_bytes = fetch->place_bytes};
    return fetch;
}

void nvt_tier_fetch_give(struct nvt_tier_fetch *fetch)
{
    fetch->next = fetch->tier->spare_fetches;
    fetch->tier->spare_fetches = fetch;
}

static bool has_bytes(const struct nvt_tier_copy *copy, uint64_t end)
{
    return copy->medium && copy->state <= NVT_TIER_BEHIND && copy->durable >= end;
}

static struct nvt_tier_copy *choose_copy(const struct nvt_tier_fetch *fetch)
{
    struct nvt_tier *tier = fetch->tier;
    if (fetch->copy >= 0)
        return fetch->copies_tried ? NULL : &tier->copies[fetch->copy];
    for (uint32_t i = 0; i < tier->copies_count; i++)
        if (!(fetch->copies_tried >> i & 1) &&
            has_bytes(&tier->copies[i], fetch->position + fetch->bytes))
            return &tier->copies[i];
    return NULL;
}

static void fetch_go_on(struct nvt_tier_fetch *fetch);

/* One that has it was away when it was asked, and may be back soon. */
static void give_up_for_now(struct nvt_tier_fetch *fetch)
{
    struct nvt_tier *tier = fetch->tier;
    bool is_anywhere = false;
    for (uint32_t i = 0; i < tier->copies_count; i++)
        is_anywhere = is_anywhere || has_bytes(&tier->copies[i], fetch->position + fetch->bytes);
    if (!is_anywhere || fetch->copy >= 0 || fetch->is_damaged)
        return fetch->done(fetch, -EIO);
    fetch->next = tier->stalled;
    tier->stalled = fetch;
}

void nvt_tier_fetch_again(struct nvt_tier *tier)
{
    struct nvt_tier_fetch *fetch = tier->stalled, *next;
    tier->stalled = NULL;
    for (; fetch; fetch = next) {
        next = fetch->next;
        const struct nvt_io *io = fetch->part.op ? fetch->part.op->io : NULL;
        fetch->copies_tried = 0;
        if (io && io->given_up && io->given_up(io))
            fetch->done(fetch, -EIO);
        else
            fetch_go_on(fetch);
    }
}

static void fetch_moved(struct nvt_tier_move *move, int result)
{
    struct nvt_tier_fetch *fetch = (struct nvt_tier_fetch *)move;
    if (!result) {
        fetch->moved += move->bytes;
    } else {
        fetch->moved = 0;
        move->medium = NULL; /* the next one */
        fetch->is_damaged = fetch->is_damaged || result != -ESTALE;
    }
    fetch_go_on(fetch);
}

static void fetch_go_on(struct nvt_tier_fetch *fetch)
{
    struct nvt_tier *tier = fetch->tier;
    struct nvt_tier_move *move = &fetch->move;
    while (fetch->moved < fetch->bytes) {
        if (!move->medium) {
            struct nvt_tier_copy *copy = choose_copy(fetch);
            if (!copy)
                return give_up_for_now(fetch);
            fetch->copies_tried |= 1u << (copy - tier->copies);
            move->medium = copy->medium;
        }
        const uint64_t ring = tier->super.ring_bytes;
        const uint64_t at = (fetch->position + fetch->moved) % ring;
        move->is_write = false;
        move->at = NVT_TIER_RING + at;
        move->data = fetch->to + fetch->moved;
        move->bytes = (uint32_t)mover_min_u64(fetch->bytes - fetch->moved, ring - at);
        move->moved = 0;
        move->uring = tier->turn->uring;
        move->done = fetch_moved;
        if (!move->medium->ops->start(move->medium, move))
            return;
        if (!move->result) {
            fetch->moved += move->bytes;
        } else {
            fetch->moved = 0;
            fetch->is_damaged = fetch->is_damaged || move->result != -ESTALE;
            move->medium = NULL;
        }
    }
    fetch->done(fetch, 0);
}

void nvt_tier_fetch_start(struct nvt_tier_fetch *fetch, uint8_t *to, uint64_t position,
                          uint32_t bytes, void (*done)(struct nvt_tier_fetch *fetch, int result))
{
    fetch->to = to;
    fetch->position = position;
    fetch->bytes = bytes;
    fetch->moved = 0;
    fetch->done = done;
    fetch->move.medium = NULL;
    fetch_go_on(fetch);
}

/* ---- whole records ---- */

static bool is_record_of(const struct nvt_tier_fetch *fetch)
{
    const struct nvt_tier_extent *extent = &fetch->part.extent;
    const uint8_t *payload = fetch->place + NVT_TIER_HEAD_BYTES;
    struct nvt_tier_record record;
    return nvt_tier_record_decode(&fetch->tier->super, fetch->place, &record) &&
           record.position == extent->position && record.kind == NVT_TIER_WRITE &&
           record.payload_bytes == extent->payload_bytes &&
           record.payload_sum == nvt_tier_sum(0, payload, record.payload_bytes);
}

static void fetch_record_read(struct nvt_tier_fetch *fetch, int result)
{
    const struct nvt_tier_part *part = &fetch->part;
    if (!result && !is_record_of(fetch)) { /* another copy may have it */
        fetch->is_damaged = true;
        return nvt_tier_fetch_start(fetch, fetch->place, fetch->position, fetch->bytes,
                                    fetch_record_read);
    }
    if (!result)
        memcpy(part->to, fetch->place + NVT_TIER_HEAD_BYTES + part->skip_bytes, part->bytes);
    part->done(fetch, result);
}

bool nvt_tier_fetch_record(struct nvt_tier *tier, const struct nvt_tier_part *part)
{
    const uint32_t all = NVT_TIER_HEAD_BYTES + part->extent.payload_bytes;
    struct nvt_tier_fetch *fetch = nvt_tier_fetch_take(tier, all);
    if (!fetch)
        return false;
    fetch->part = *part;
    nvt_tier_fetch_start(fetch, fetch->place, part->extent.position, all, fetch_record_read);
    return true;
}

bool nvt_tier_stage_read(const struct nvt_tier *tier, uint64_t position, uint8_t *to,
                         uint32_t bytes)
{
    const uint64_t stage = tier->super.stage_bytes, at = position & (stage - 1);
    const uint64_t oldest = tier->end > stage ? tier->end - stage : 0;
    if (position < oldest || position < tier->staged_from)
        return false;
    const uint32_t first = (uint32_t)mover_min_u64(bytes, stage - at);
    memcpy(to, tier->stage + at, first);
    memcpy(to + first, tier->stage, bytes - first);
    return true;
}
