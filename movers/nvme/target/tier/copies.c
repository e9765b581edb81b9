/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The copies of the log. Each gets the same bytes at the same places, from the stage, in their
 * order. One that fails or falls behind is left alone until it can go on; it holds nobody up.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/minmax.h"
#include "nvme/target/tier/inside.h"

enum { CATCH_UP_BYTES = 256 << 10 };

#define SLOW_NS 1000000000ull /* a copy that needs longer for a write falls behind */

static uint64_t quorum_of(const struct nvt_tier *tier,
                          uint64_t (*get)(const struct nvt_tier_copy *))
{
    uint64_t values[NVT_TIER_COPIES_MAX] = {0};
    for (uint32_t i = 0; i < tier->copies_count; i++) { /* the greatest first */
        uint32_t at = i;
        const uint64_t value = get(&tier->copies[i]);
        for (; at > 0 && values[at - 1] < value; at--)
            values[at] = values[at - 1];
        values[at] = value;
    }
    return values[tier->quorum - 1];
}

static uint64_t durable_of(const struct nvt_tier_copy *copy)
{
    return copy->durable;
}

uint64_t nvt_tier_copies_slowest(const struct nvt_tier *tier)
{
    uint64_t slowest = tier->acked;
    for (uint32_t i = 0; i < tier->copies_count; i++)
        if (tier->copies[i].state == NVT_TIER_LIVE)
            slowest = mover_min_u64(slowest, tier->copies[i].durable);
    return slowest;
}

static void note_acked(struct nvt_tier *tier)
{
    const uint64_t acked = quorum_of(tier, durable_of);
    const bool is_more = acked > tier->acked;
    if (is_more) {
        tier->acked = acked;
        nvt_tier_answer(tier);
    }
    /* The stage has room when its slowest copy has moved, which may be later. */
    const uint64_t slowest = nvt_tier_copies_slowest(tier);
    if (!is_more && slowest == tier->slowest)
        return;
    tier->slowest = slowest;
    if (tier->phase == NVT_TIER_SERVING && !list_is_empty(&tier->waiting))
        nvt_tier_go_on(tier);
}

static void lose_copy(struct nvt_tier_copy *copy, int error, const char *why)
{
    struct nvt_tier *tier = copy->tier;
    uint32_t left = 0;
    copy->error = -error;
    copy->sent = copy->durable;
    copy->state = error == -ESTALE ? NVT_TIER_BEHIND : NVT_TIER_BROKEN;
    copy->needs_look = true;
    for (uint32_t i = 0; i < tier->copies_count; i++)
        left += tier->copies[i].medium && tier->copies[i].state != NVT_TIER_BROKEN;
    if (left >= tier->quorum)
        return;
    nvt_tier_fail(tier, "the log has too few copies left: %s: %s", copy->name, why);
    nvt_tier_end_logging(tier);
}

static void kick_copy(struct nvt_tier_copy *copy);

/* Flights of one that has fallen behind meanwhile say nothing any more. */
static void land_flights(struct nvt_tier_copy *copy)
{
    while (copy->flights_count && copy->flights[copy->first_flight].is_done) {
        const struct nvt_tier_flight *flight = &copy->flights[copy->first_flight];
        if (copy->state == NVT_TIER_LIVE && flight->move.result)
            lose_copy(copy, flight->move.result, strerror(-flight->move.result));
        if (copy->state == NVT_TIER_LIVE)
            copy->durable = flight->end;
        copy->first_flight = (copy->first_flight + 1) % NVT_TIER_FLIGHTS;
        copy->flights_count--;
        copy->flown_ns = copy->tier->now_ns;
    }
}

static void flight_done(struct nvt_tier_move *move, int result)
{
    struct nvt_tier_flight *flight = (struct nvt_tier_flight *)move;
    struct nvt_tier_copy *copy = flight->copy;
    move->result = result;
    flight->is_done = true;
    land_flights(copy);
    kick_copy(copy);
    note_acked(copy->tier);
}

static bool start_flight(struct nvt_tier_copy *copy)
{
    struct nvt_tier *tier = copy->tier;
    struct nvt_tier_medium *medium = copy->medium;
    if (copy->state != NVT_TIER_LIVE || copy->sent >= tier->end ||
        copy->flights_count >= mover_min_u32(medium->writes_max, NVT_TIER_FLIGHTS))
        return false;
    const uint64_t stage = tier->super.stage_bytes, at = copy->sent & (stage - 1);
    struct nvt_tier_flight *flight =
        &copy->flights[(copy->first_flight + copy->flights_count++) % NVT_TIER_FLIGHTS];
    uint64_t bytes = mover_min_u64(tier->end - copy->sent, NVT_TIER_FLIGHT_BYTES);
    bytes = mover_min_u64(bytes, stage - at);
    *flight =
        (struct nvt_tier_flight){.move = {.medium = medium,
                                          .uring = tier->turn->uring,
                                          .is_write = true,
                                          .at = NVT_TIER_RING + copy->sent % tier->super.ring_bytes,
                                          .data = tier->stage + at,
                                          .bytes = (uint32_t)bytes,
                                          .done = flight_done},
                                 .copy = copy,
                                 .end = copy->sent + bytes};
    if (copy->flights_count == 1)
        copy->flown_ns = tier->now_ns;
    copy->sent += bytes;
    if (medium->ops->start(medium, &flight->move)) {
        flight->is_done = true;
        land_flights(copy);
    }
    return true;
}

static void kick_copy(struct nvt_tier_copy *copy)
{
    while (start_flight(copy))
        ;
}

void nvt_tier_copies_kick(struct nvt_tier *tier)
{
    for (uint32_t i = 0; i < tier->copies_count; i++)
        kick_copy(&tier->copies[i]);
    note_acked(tier);
}

/* ---- slots ---- */

static void slot_ended(struct nvt_tier *tier)
{
    uint32_t written = 0;
    if (!tier->slot_done)
        return;
    for (uint32_t i = 0; i < tier->copies_count; i++) {
        const struct nvt_tier_copy *copy = &tier->copies[i];
        if (copy->state == NVT_TIER_LIVE && !copy->is_slot_written)
            return;
        written += copy->state == NVT_TIER_LIVE && copy->is_slot_written;
    }
    if (written < tier->quorum)
        return; /* until copies are back */
    void (*done)(struct nvt_tier * tier) = tier->slot_done;
    tier->slot_done = NULL;
    done(tier);
}

static void slot_written(struct nvt_tier_copy *copy, int result)
{
    copy->is_slot_moving = false;
    copy->is_slot_written = !result && copy->slot_count == copy->tier->slot.count;
    if (result && copy->state == NVT_TIER_LIVE)
        lose_copy(copy, result, strerror(-result));
}

static void slot_moved(struct nvt_tier_move *move, int result)
{
    struct nvt_tier_copy *copy = LIST_MEMBER(move, struct nvt_tier_copy, slot_move);
    slot_written(copy, result);
    slot_ended(copy->tier);
}

static void write_slot_of(struct nvt_tier_copy *copy)
{
    struct nvt_tier *tier = copy->tier;
    nvt_tier_slot_encode(&tier->super, &tier->slot, copy->slot_bytes);
    copy->is_slot_written = false;
    copy->is_slot_moving = true;
    copy->slot_count = tier->slot.count;
    copy->slot_move =
        (struct nvt_tier_move){.medium = copy->medium,
                               .uring = tier->turn->uring,
                               .is_write = true,
                               .at = (uint64_t)NVT_TIER_SLOTS * (1 + tier->slot.count % 2),
                               .data = copy->slot_bytes,
                               .bytes = sizeof(copy->slot_bytes),
                               .done = slot_moved};
    if (copy->medium->ops->start(copy->medium, &copy->slot_move))
        slot_written(copy, copy->slot_move.result);
}

void nvt_tier_copies_write_slot(struct nvt_tier *tier, void (*done)(struct nvt_tier *tier))
{
    tier->slot.count++;
    tier->slot.epoch = tier->epoch;
    tier->slot_done = done;
    for (uint32_t i = 0; i < tier->copies_count; i++) {
        struct nvt_tier_copy *copy = &tier->copies[i];
        copy->is_slot_written = false;
        if (copy->state == NVT_TIER_LIVE && !copy->is_slot_moving)
            write_slot_of(copy);
    }
    slot_ended(tier);
}

/* ---- copies that are behind ---- */

static void end_catch_up(struct nvt_tier_copy *copy, int result)
{
    copy->is_catching_up = false;
    copy->needs_look |= result != 0;
}

static void piece_written(struct nvt_tier_move *move, int result)
{
    struct nvt_tier_copy *copy = LIST_MEMBER(move, struct nvt_tier_copy, catch_up);
    if (!result)
        copy->durable = copy->sent += move->bytes;
    end_catch_up(copy, result);
    note_acked(copy->tier);
}

static void piece_read(struct nvt_tier_fetch *fetch, int result)
{
    struct nvt_tier_copy *copy = &fetch->tier->copies[fetch->mends];
    struct nvt_tier_move *move = &copy->catch_up;
    const uint32_t bytes = fetch->bytes;
    nvt_tier_fetch_give(fetch);
    if (result)
        return end_catch_up(copy, 0); /* no other has it now */
    *move =
        (struct nvt_tier_move){.medium = copy->medium,
                               .uring = copy->tier->turn->uring,
                               .is_write = true,
                               .at = NVT_TIER_RING + copy->durable % copy->tier->super.ring_bytes,
                               .data = copy->catch_up_piece,
                               .bytes = bytes,
                               .done = piece_written};
    if (copy->medium->ops->start(copy->medium, move))
        piece_written(move, move->result);
}

/* What some copy has for certain. */
static uint64_t furthest_of(const struct nvt_tier *tier)
{
    uint64_t furthest = 0;
    for (uint32_t i = 0; i < tier->copies_count; i++)
        if (tier->copies[i].state == NVT_TIER_LIVE)
            furthest = mover_max_u64(furthest, tier->copies[i].durable);
    return furthest;
}

static void copy_piece(struct nvt_tier_copy *copy)
{
    struct nvt_tier *tier = copy->tier;
    const uint64_t ring = tier->super.ring_bytes;
    struct nvt_tier_fetch *fetch = nvt_tier_fetch_take(tier, 0);
    if (!fetch)
        return;
    uint64_t bytes = mover_min_u64(furthest_of(tier) - copy->durable, CATCH_UP_BYTES);
    bytes = mover_min_u64(bytes, ring - copy->durable % ring);
    fetch->mends = (uint32_t)(copy - tier->copies);
    copy->is_catching_up = true;
    nvt_tier_fetch_start(fetch, copy->catch_up_piece, copy->durable, (uint32_t)bytes, piece_read);
}

static void yield_copy(struct nvt_tier_copy *copy)
{
    copy->state = NVT_TIER_BROKEN;
    if (copy->medium->ops->yield)
        copy->medium->ops->yield(copy->medium);
}

/* What is only in the log is the other one's to say. */
static void yield_log(struct nvt_tier *tier, const struct nvt_tier_copy *found)
{
    atomic_store(&tier->lost, ESTALE);
    nvt_tier_fail(tier, "another target has opened the log (%s)", found->name);
    nvt_tier_end_logging(tier);
    for (uint32_t i = 0; i < tier->copies_count; i++) {
        if (tier->copies[i].medium && tier->copies[i].medium->ops->yield)
            yield_copy(&tier->copies[i]);
    }
}

/* Another writer would have left a greater epoch there. */
static void slots_read(struct nvt_tier_move *move, int result)
{
    struct nvt_tier_copy *copy = LIST_MEMBER(move, struct nvt_tier_copy, catch_up);
    struct nvt_tier *tier = copy->tier;
    copy->is_catching_up = false;
    if (result)
        return;
    bool has_slot = copy->is_new; /* one that is new has none yet */
    for (uint32_t i = 0; i < 2; i++) {
        struct nvt_tier_slot slot;
        const uint8_t *bytes = copy->catch_up_piece + i * NVT_TIER_SLOTS;
        if (nvt_tier_slot_decode(&tier->super, bytes, &slot))
            continue;
        has_slot = true;
        if (slot.epoch > tier->epoch)
            return yield_log(tier, copy);
    }
    copy->needs_look = false;
    if (has_slot)
        return;
    lose_copy(copy, -EILSEQ, "it is another log now, or new memory");
    yield_copy(copy);
}

static void look_at_slots(struct nvt_tier_copy *copy)
{
    copy->catch_up = (struct nvt_tier_move){.medium = copy->medium,
                                            .uring = copy->tier->turn->uring,
                                            .at = NVT_TIER_SLOTS,
                                            .data = copy->catch_up_piece,
                                            .bytes = NVT_TIER_SLOTS + NVT_TIER_SLOT_BYTES,
                                            .done = slots_read};
    copy->is_catching_up = true;
    if (copy->medium->ops->start(copy->medium, &copy->catch_up))
        slots_read(&copy->catch_up, copy->catch_up.result);
}

/* One that could not be had when the log was opened answers now. */
static void super_read(struct nvt_tier_move *move, int result)
{
    struct nvt_tier_copy *copy = LIST_MEMBER(move, struct nvt_tier_copy, catch_up);
    const struct nvt_tier *tier = copy->tier;
    struct nvt_tier_super super;
    copy->is_catching_up = false;
    if (result)
        return;
    if (nvt_tier_super_decode(copy->catch_up_piece, &super) != NVT_TIER_GOOD ||
        memcmp(super.identity, tier->super.identity, sizeof(super.identity)) != 0 ||
        super.copy != copy - tier->copies) {
        copy->state = NVT_TIER_BROKEN; /* the next start tells */
        return;
    }
    copy->state = NVT_TIER_BEHIND;
    copy->durable = copy->sent = 0;
    copy->needs_look = true;
    copy->is_slot_written = false;
}

static void look_at_lost(struct nvt_tier_copy *copy)
{
    if (!copy->medium || copy->is_catching_up)
        return;
    if (!copy->catch_up_piece && !(copy->catch_up_piece = malloc(CATCH_UP_BYTES)))
        return;
    copy->catch_up = (struct nvt_tier_move){.medium = copy->medium,
                                            .uring = copy->tier->turn->uring,
                                            .data = copy->catch_up_piece,
                                            .bytes = NVT_TIER_HEAD_BYTES,
                                            .done = super_read};
    copy->is_catching_up = true;
    if (copy->medium->ops->start(copy->medium, &copy->catch_up))
        super_read(&copy->catch_up, copy->catch_up.result);
}

/* What it lacks is in the stage: it goes on from there. */
static bool is_staged(const struct nvt_tier_copy *copy)
{
    const struct nvt_tier *tier = copy->tier;
    return copy->durable >= tier->staged_from &&
           tier->end - copy->durable <= tier->super.stage_bytes;
}

static void mend_copy(struct nvt_tier_copy *copy)
{
    struct nvt_tier *tier = copy->tier;
    if (tier->epoch && copy->state == NVT_TIER_LOST)
        return look_at_lost(copy);
    if (!tier->epoch || copy->state != NVT_TIER_BEHIND || !copy->medium || copy->flights_count ||
        copy->is_catching_up || copy->is_slot_moving)
        return;
    if (!copy->catch_up_piece && !(copy->catch_up_piece = malloc(CATCH_UP_BYTES)))
        return;
    if (copy->needs_look)
        return look_at_slots(copy);
    if (copy->durable < tier->head)
        copy->durable = copy->sent = tier->head; /* what was before has gone everywhere */
    if (!copy->is_slot_written && !copy->is_new)
        return write_slot_of(copy);
    if (!is_staged(copy))
        return copy->durable < furthest_of(tier) ? copy_piece(copy) : (void)0;
    if (!copy->is_slot_written) /* with it a new one takes part in elections */
        return write_slot_of(copy);
    copy->state = NVT_TIER_LIVE;
    copy->sent = copy->durable;
    kick_copy(copy);
    slot_ended(tier);
}

void nvt_tier_copies_tick(struct nvt_tier *tier)
{
    for (uint32_t i = 0; i < tier->copies_count; i++) {
        struct nvt_tier_copy *copy = &tier->copies[i];
        if (copy->state == NVT_TIER_LIVE && copy->flights_count && tier->acked > copy->durable &&
            tier->now_ns - copy->flown_ns > SLOW_NS) {
            copy->state = NVT_TIER_BEHIND;
            copy->sent = copy->durable;
        }
        mend_copy(copy);
    }
    slot_ended(tier);
    note_acked(tier);
}
