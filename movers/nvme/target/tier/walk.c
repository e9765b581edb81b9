/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a log has, when it is opened: the chain of its records, by their heads alone. Payloads are
 * looked at of the last records only, those that may have been under way when the power went; of
 * all others they are looked at before they go to FILE.
 *
 * With several copies each is walked to its end first. The log is that of the copy whose last
 * record has the greatest epoch, of these the longest: it has all that was answered.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/minmax.h"
#include "common/serve/log.h"
#include "nvme/target/tier/inside.h"

enum { CHUNK_BYTES = 256 << 10, RECORDS = 1024 /* in one turn */ };

#define WARM_UP_NS 1000000000ull /* hosts of a new log wait no longer for its pages */

enum pass {
    PASS_FIND, /* the end of each copy */
    PASS_FIND_PROVE,
    PASS_INDEX,  /* of the one that is the log */
    PASS_PROVE,  /* the last payloads */
    PASS_BEYOND, /* whether there are records behind the end */
    PASS_CLAIM,  /* the slot says whose the log is */
    PASS_BEGIN,  /* and so does its next record */
    PASS_WARM,   /* a new one gets its pages */
};

struct place {
    uint64_t position, check, epoch;
};

struct nvt_tier_walk {
    enum pass pass;
    uint32_t copy;
    struct place at, last[3]; /* `last`: places a stage apart, the oldest first */
    uint64_t head, limit;     /* records end there at the latest */
    uint64_t begin_end, warm_ns;
    bool is_reading, is_damaged, is_proved;
    int error;
    uint64_t chunk_at;
    uint32_t chunk_bytes;
    uint8_t *chunk;
};

static void chunk_read(struct nvt_tier_fetch *fetch, int result)
{
    struct nvt_tier_walk *walk = fetch->tier->walk;
    walk->is_reading = false;
    walk->error = result;
    if (result)
        walk->chunk_bytes = 0;
    nvt_tier_fetch_give(fetch);
}

/* False: it is read now, or cannot be (`error`). `bytes` of it lie in the chunk afterwards. */
static bool has_chunk(struct nvt_tier *tier, uint64_t position, uint32_t bytes)
{
    struct nvt_tier_walk *walk = tier->walk;
    if (position >= walk->chunk_at && position + bytes <= walk->chunk_at + walk->chunk_bytes)
        return true;
    struct nvt_tier_fetch *fetch = nvt_tier_fetch_take(tier, 0);
    if (!fetch) {
        walk->error = -ENOMEM;
        return false;
    }
    walk->chunk_at = position;
    walk->chunk_bytes =
        (uint32_t)mover_min_u64(CHUNK_BYTES, walk->head + tier->super.ring_bytes - position);
    walk->is_reading = true;
    fetch->copy = (int)walk->copy;
    nvt_tier_fetch_start(fetch, walk->chunk, position, walk->chunk_bytes, chunk_read);
    return !walk->is_reading && !walk->error;
}

static void note_place(struct nvt_tier *tier, const struct place *at)
{
    const struct nvt_tier_mark mark = {at->position, at->check, at->epoch, tier->now_ns};
    nvt_tier_destage_note(&tier->destage, &mark);
}

static void begin_pass(struct nvt_tier *tier, enum pass pass, uint32_t copy)
{
    struct nvt_tier_walk *walk = tier->walk;
    const struct nvt_tier_slot *slot = &tier->copies[copy].slot;
    walk->pass = pass;
    walk->copy = copy;
    walk->head = slot->head;
    walk->at =
        (struct place){.position = slot->head, .check = slot->check, .epoch = slot->head_epoch};
    walk->chunk_bytes = 0;
    walk->last[0] = walk->last[1] = walk->last[2] = walk->at;
    if (pass != PASS_INDEX)
        return;
    nvt_tier_index_drop(&tier->index, UINT64_MAX, UINT32_MAX);
    nvt_tier_destage_init(&tier->destage, tier->super.ring_bytes);
    note_place(tier, &walk->at);
}

int nvt_tier_walk_begin(struct nvt_tier *tier)
{
    struct nvt_tier_walk *walk = calloc(1, sizeof(*walk));
    if (!walk || !(walk->chunk = malloc(CHUNK_BYTES))) {
        free(walk);
        return -ENOMEM;
    }
    tier->walk = walk;
    walk->limit = UINT64_MAX;
    uint32_t first = 0;
    while (tier->copies[first].state != NVT_TIER_LIVE)
        first++;
    begin_pass(tier, tier->copies_count > 1 ? PASS_FIND : PASS_INDEX, first);
    return 0;
}

void nvt_tier_walk_end(struct nvt_tier *tier)
{
    if (tier->walk)
        free(tier->walk->chunk);
    free(tier->walk);
    tier->walk = NULL;
}

/* The record that continues the chain. */
static bool take_record(const struct nvt_tier *tier, struct nvt_tier_record *record)
{
    const struct nvt_tier_walk *walk = tier->walk;
    return nvt_tier_record_decode(&tier->super, walk->chunk + (walk->at.position - walk->chunk_at),
                                  record) &&
           record->position == walk->at.position && record->before == walk->at.check &&
           record->epoch >= walk->at.epoch &&
           record->position + nvt_tier_record_bytes(record->payload_bytes) <=
               mover_min_u64(walk->limit, walk->head + tier->super.ring_bytes) &&
           record->offset + record->len_bytes <= tier->size_bytes;
}

/* Other copies that are a leading part of this one lack only what follows. */
static void note_prefixes(struct nvt_tier *tier)
{
    const struct place *at = &tier->walk->at;
    for (uint32_t i = 0; i < tier->copies_count; i++) {
        struct nvt_tier_copy *copy = &tier->copies[i];
        if (copy->state == NVT_TIER_LIVE && copy->found_end == at->position &&
            copy->found_check == at->check)
            copy->durable = at->position;
    }
}

static void index_record(struct nvt_tier *tier, const struct nvt_tier_record *record)
{
    struct nvt_tier_walk *walk = tier->walk;
    const struct nvt_tier_extent extent = {.offset = record->offset,
                                           .len_bytes = record->len_bytes,
                                           .position = record->position,
                                           .payload_bytes = record->payload_bytes,
                                           .kind = record->kind};
    if (record->kind != NVT_TIER_BEGIN)
        nvt_tier_index_put(&tier->index, &extent);
    tier->counts.replayed_records++;
    note_place(tier, &walk->at);
    if (tier->copies_count > 1)
        note_prefixes(tier);
}

static void note_last(struct nvt_tier *tier)
{
    struct nvt_tier_walk *walk = tier->walk;
    if (walk->at.position - walk->last[2].position < tier->super.stage_bytes)
        return;
    walk->last[0] = walk->last[1];
    walk->last[1] = walk->last[2];
    walk->last[2] = walk->at;
}

/* True: the end was found, or something is wrong. */
static bool step_along(struct nvt_tier *tier)
{
    struct nvt_tier_walk *walk = tier->walk;
    struct nvt_tier_record record;
    for (uint32_t i = 0; i < RECORDS; i++) {
        if (walk->at.position + NVT_TIER_HEAD_BYTES > walk->head + tier->super.ring_bytes)
            return true;
        if (!has_chunk(tier, walk->at.position, NVT_TIER_HEAD_BYTES))
            return walk->error;
        if (!take_record(tier, &record))
            return true;
        if (walk->pass == PASS_INDEX && nvt_tier_index_left(&tier->index) < 2) {
            walk->error = -ENOMEM;
            return true;
        }
        walk->at = (struct place){.position =
                                      record.position + nvt_tier_record_bytes(record.payload_bytes),
                                  .check = record.check,
                                  .epoch = record.epoch};
        note_last(tier);
        if (walk->pass == PASS_INDEX)
            index_record(tier, &record);
    }
    return false;
}

/* ---- which copy it is ---- */

static bool walk_is_better(const struct nvt_tier_copy *copy, const struct nvt_tier_copy *best)
{
    if (copy->found_epoch != best->found_epoch)
        return copy->found_epoch > best->found_epoch;
    return copy->found_end > best->found_end;
}

static void choose_best(struct nvt_tier *tier)
{
    const struct nvt_tier_copy *best = NULL;
    uint32_t read = 0;
    for (uint32_t i = 0; i < tier->copies_count; i++) {
        const struct nvt_tier_copy *copy = &tier->copies[i];
        read += copy->state == NVT_TIER_LIVE;
        if (copy->state == NVT_TIER_LIVE && (!best || walk_is_better(copy, best)))
            best = copy;
    }
    if (read < tier->quorum)
        return nvt_tier_fail(tier, "too few copies of the log can be read");
    begin_pass(tier, PASS_INDEX, (uint32_t)(best - tier->copies));
    tier->walk->limit = best->found_end;
    tier->walk->is_proved = true;
}

/* The end of a copy is known, with its last payloads. */
static void walk_end_copy(struct nvt_tier *tier)
{
    struct nvt_tier_walk *walk = tier->walk;
    struct nvt_tier_copy *copy = &tier->copies[walk->copy];
    copy->found_end = walk->at.position;
    copy->found_check = walk->at.check;
    copy->found_epoch = walk->at.epoch;
    if (walk->error)
        copy->state = NVT_TIER_LOST;
    walk->error = 0;
    walk->limit = UINT64_MAX;
    uint32_t i = walk->copy + 1;
    while (i < tier->copies_count && tier->copies[i].state != NVT_TIER_LIVE)
        i++;
    if (i < tier->copies_count)
        begin_pass(tier, PASS_FIND, i);
    else
        choose_best(tier);
}

static void begin_prove(struct nvt_tier *tier)
{
    struct nvt_tier_walk *walk = tier->walk;
    walk->limit = walk->at.position;
    walk->at = walk->last[0];
    walk->pass = walk->pass == PASS_FIND ? PASS_FIND_PROVE : PASS_PROVE;
    walk->chunk_bytes = 0;
}

/* ---- the end ---- */

static void end_walk(struct nvt_tier *tier)
{
    nvt_tier_walk_end(tier);
    tier->phase = NVT_TIER_SERVING;
    nvt_tier_go_on(tier);
    nvt_tier_flow(tier);
}

static void note_claimed(struct nvt_tier *tier)
{
    nvt_tier_append_begin(tier);
    tier->walk->pass = PASS_BEGIN;
    tier->walk->begin_end = tier->end;
    nvt_tier_copies_kick(tier);
}

static void take_log(struct nvt_tier *tier)
{
    struct nvt_tier_walk *walk = tier->walk;
    const struct nvt_tier_copy *best = &tier->copies[walk->copy];
    walk->pass = PASS_CLAIM;
    tier->slot = best->slot;
    tier->end = tier->staged_from = walk->at.position;
    tier->end_check = walk->at.check;
    tier->answered = (struct nvt_tier_mark){
        .position = tier->end, .check = tier->end_check, .epoch = walk->at.epoch};
    tier->head = best->slot.head;
    if (!tier->index.used) { /* FILE has all of it */
        tier->head = tier->slot.head = tier->end;
        tier->slot.check = tier->end_check;
        tier->slot.head_epoch = walk->at.epoch;
    }
    tier->epoch = walk->at.epoch;
    for (uint32_t i = 0; i < tier->copies_count; i++) {
        struct nvt_tier_copy *copy = &tier->copies[i];
        tier->epoch = mover_max_u64(tier->epoch, copy->slot.epoch);
        tier->slot.count = mover_max_u64(tier->slot.count, copy->slot.count);
        if (copy == best)
            copy->durable = tier->end;
        copy->durable = mover_min_u64(copy->durable, tier->end);
        copy->sent = copy->durable;
        if (copy->state == NVT_TIER_LIVE && copy->durable < tier->end)
            copy->state = NVT_TIER_BEHIND;
    }
    tier->epoch++;
    nvt_tier_copies_write_slot(tier, note_claimed);
}

static void end_prove(struct nvt_tier *tier)
{
    struct nvt_tier_walk *walk = tier->walk;
    walk->is_proved = true;
    walk->pass = PASS_BEYOND;
    if (walk->at.position == walk->limit)
        return;
    walk->limit = walk->at.position; /* that payload is torn: the log ends before it */
    begin_pass(tier, PASS_INDEX, walk->copy);
}

/* A whole record each. */
static bool step_prove(struct nvt_tier *tier)
{
    struct nvt_tier_walk *walk = tier->walk;
    struct nvt_tier_record record;
    while (walk->at.position < walk->limit) {
        if (!has_chunk(tier, walk->at.position, NVT_TIER_HEAD_BYTES))
            return walk->error;
        if (!take_record(tier, &record))
            return true;
        const uint32_t bytes = (uint32_t)nvt_tier_record_bytes(record.payload_bytes);
        if (!has_chunk(tier, walk->at.position, bytes))
            return walk->error;
        const uint8_t *payload =
            walk->chunk + (walk->at.position - walk->chunk_at) + NVT_TIER_HEAD_BYTES;
        if (nvt_tier_sum(0, payload, record.payload_bytes) != record.payload_sum &&
            record.payload_bytes)
            return true;
        walk->at = (struct place){walk->at.position + bytes, record.check, record.epoch};
    }
    return true;
}

/* Records that lie further behind the end than any that were not answered: the log is damaged. */
static bool step_beyond(struct nvt_tier *tier)
{
    struct nvt_tier_walk *walk = tier->walk;
    const uint64_t from = walk->at.position + 2ull * tier->super.stage_bytes;
    struct nvt_tier_record record;
    if (from + CHUNK_BYTES > walk->head + tier->super.ring_bytes)
        return true;
    if (!has_chunk(tier, from, CHUNK_BYTES))
        return walk->error;
    for (uint32_t i = 0; i < CHUNK_BYTES && !walk->is_damaged; i += NVT_TIER_HEAD_BYTES)
        walk->is_damaged = nvt_tier_record_decode(
                               &tier->super, walk->chunk + (from - walk->chunk_at) + i, &record) &&
                           record.position == from + i && record.epoch >= walk->at.epoch;
    return true;
}

static void tell_damage(struct nvt_tier *tier)
{
    snprintf(tier->trouble, sizeof(tier->trouble),
             "the log is damaged at %" PRIu64 ": what was written behind that is lost",
             tier->walk->at.position);
    mover_log(MOVER_LOG_ERROR, "tier: %s. What is before goes to FILE: check what hosts have there",
              tier->trouble);
}

static void end_index(struct nvt_tier *tier)
{
    if (tier->walk->is_proved)
        tier->walk->pass = PASS_BEYOND;
    else
        begin_prove(tier);
}

static void go_to_next_pass(struct nvt_tier *tier)
{
    struct nvt_tier_walk *walk = tier->walk;
    if (walk->pass == PASS_FIND_PROVE || (walk->pass == PASS_FIND && walk->error))
        return walk_end_copy(tier);
    if (walk->pass == PASS_FIND)
        return begin_prove(tier);
    if (walk->error)
        return nvt_tier_fail(tier, "the log cannot be read: %s", strerror(-walk->error));
    if (walk->pass == PASS_INDEX)
        return end_index(tier);
    if (walk->pass == PASS_PROVE)
        return end_prove(tier);
    if (walk->is_damaged)
        tell_damage(tier);
    take_log(tier);
}

/* True: there is more. Copies take turns. */
static bool warm_media_up(struct nvt_tier *tier)
{
    struct nvt_tier_walk *walk = tier->walk;
    bool any = false;
    if (!walk->warm_ns)
        walk->warm_ns = tier->now_ns;
    if (!tier->is_made || tier->now_ns - walk->warm_ns > WARM_UP_NS)
        return false;
    for (uint32_t i = 0; i < tier->copies_count; i++) {
        struct nvt_tier_medium *medium = tier->copies[i].medium;
        if (medium && medium->ops->warm_up)
            any = medium->ops->warm_up(medium) || any;
    }
    return any;
}

bool nvt_tier_walk_step(struct nvt_tier *tier)
{
    struct nvt_tier_walk *walk = tier->walk;
    bool is_over = false;
    if (walk->is_reading)
        return false;
    switch (walk->pass) {
    case PASS_FIND:
    case PASS_INDEX:
        is_over = step_along(tier);
        break;
    case PASS_FIND_PROVE:
    case PASS_PROVE:
        is_over = step_prove(tier);
        break;
    case PASS_BEYOND:
        is_over = step_beyond(tier);
        break;
    case PASS_CLAIM:
        return false;
    case PASS_BEGIN:
        if (tier->acked < walk->begin_end)
            return false;
        walk->pass = PASS_WARM;
        break;
    case PASS_WARM:
        if (!warm_media_up(tier))
            end_walk(tier);
        return true;
    }
    if (is_over)
        go_to_next_pass(tier);
    return true;
}
