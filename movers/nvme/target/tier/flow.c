/* SPDX-License-Identifier: BSD-2-Clause */
/* Destaging: does what destage.h says comes next. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <nvme/types.h>

#include "common/serve/log.h"
#include "nvme/target/backend/disk.h"
#include "nvme/target/tier/inside.h"

/*
 * What destaging does while others wait for the lock, and the thread for its hosts. A host's write
 * of 4 KiB takes 3 us: a run costs three times that (to read its record, compare the sum, and give
 * it to the disk). So one run begins in a turn of the loop, which serves its hosts in between, and
 * what has ended begins none. To drop an extent from the index takes 0.4 us, and 2 us of a large
 * one, and a host waits for half of a turn: so two are dropped in each. Where writes wait for room
 * in the log there is nobody to be kept waiting, and all begin at once.
 */
enum { DROPS = 2, DROPS_AWAITED = 512 };

static void go_next(struct nvt_tier *tier)
{
    (void)nvt_tier_destage_next(&tier->destage);
    nvt_tier_flow(tier);
}

/* ---- a write to FILE ---- */

static const char *why_of(const struct nvt_tier *tier, uint16_t status)
{
    const int error = nvt_disk_error(tier->file->watched);
    if (error)
        return strerror(error);
    return (status & ~NVME_SC_DNR) == NVME_SC_CAP_EXCEEDED ? "its file system is full"
                                                           : "its disk refuses it";
}

/* Nobody would be served meanwhile. */
static bool writes_are_awaited(const struct nvt_tier *tier)
{
    return tier->leaver || !list_is_empty(&tier->waiting);
}

static void run_end(struct nvt_tier_run *run)
{
    struct nvt_tier *tier = run->tier;
    run->is_busy = false;
    tier->runs_busy--;
    if (tier->destage.step == NVT_TIER_WRITING && !writes_are_awaited(tier))
        tier->wants_runs = true;
    else
        nvt_tier_flow(tier);
}

static void run_written(struct nvt_io *lower, uint16_t status)
{
    struct nvt_tier_run *run = LIST_MEMBER(lower, struct nvt_tier_run, lower);
    struct nvt_tier *tier = run->tier;
    struct nvt_tier_turn turn;
    nvt_tier_enter(tier, &turn, lower->uring);
    if (status)
        nvt_tier_fail(tier, "%" PRIu64 " bytes at %" PRIu64 " cannot be written to FILE: %s",
                      run->len_bytes, run->offset, why_of(tier, status));
    tier->counts.destaged_bytes += status ? 0 : run->len_bytes;
    tier->counts.file_writes++;
    run_end(run);
    nvt_tier_leave(tier);
}

static void write_run(struct nvt_tier_run *run)
{
    struct nvt_tier *tier = run->tier;
    if (tier->phase == NVT_TIER_FAILED)
        return run_end(run);
    run->lower = (struct nvt_io){.kind = run->kind == NVT_TIER_WRITE    ? NVT_WRITE
                                         : run->kind == NVT_TIER_ZEROES ? NVT_WRITE_ZEROES
                                                                        : NVT_DEALLOCATE,
                                 .offset = run->offset,
                                 .len_bytes = run->len_bytes,
                                 .data = run->data,
                                 .address = tier,
                                 .host = tier,
                                 .done = run_written};
    nvt_tier_ask_file(tier, &run->lower);
}

/* A piece of it has been read. */
static void run_has_piece(struct nvt_tier_fetch *fetch)
{
    struct nvt_tier_run *run = fetch->part.run;
    nvt_tier_fetch_give(fetch);
    if (!--run->reads_left)
        write_run(run);
}

static void old_piece_read(struct nvt_io *lower, uint16_t status)
{
    struct nvt_tier_fetch *fetch = LIST_MEMBER(lower, struct nvt_tier_fetch, lower);
    struct nvt_tier *tier = fetch->tier;
    struct nvt_tier_turn turn;
    nvt_tier_enter(tier, &turn, lower->uring);
    if (status)
        nvt_tier_fail(tier, "FILE cannot be read at %" PRIu64 ": %s", lower->offset,
                      why_of(tier, status));
    run_has_piece(fetch);
    nvt_tier_leave(tier);
}

/* FILE keeps what it has there, and so does the run, which may go on behind it. */
static void leave_piece(struct nvt_tier_fetch *fetch)
{
    enum { TOLD_MAX = 20 };
    struct nvt_tier *tier = fetch->tier;
    const struct nvt_tier_extent *extent = &fetch->part.extent;
    snprintf(tier->trouble, sizeof(tier->trouble),
             "%" PRIu64 " bytes were damaged in the log, and are lost: FILE has older ones there, "
             "the last %" PRIu64 " of them from %" PRIu64 " on",
             tier->dropped_bytes + extent->len_bytes, extent->len_bytes, extent->offset);
    tier->dropped_bytes += extent->len_bytes;
    if (++tier->drops <= TOLD_MAX)
        mover_log(MOVER_LOG_ERROR,
                  "tier: the record at %" PRIu64 " is damaged, and is left out: FILE keeps what "
                  "it has in the %" PRIu64 " bytes from %" PRIu64 " on",
                  fetch->position, extent->len_bytes, extent->offset);
    fetch->lower = (struct nvt_io){.kind = NVT_READ,
                                   .offset = extent->offset,
                                   .len_bytes = extent->len_bytes,
                                   .data = fetch->part.to,
                                   .address = tier,
                                   .host = tier,
                                   .done = old_piece_read};
    nvt_tier_ask_file(tier, &fetch->lower);
}

static void run_record_read(struct nvt_tier_fetch *fetch, int result)
{
    const struct nvt_tier_extent *extent = &fetch->part.extent;
    if (result && fetch->tier->drops_damaged)
        return leave_piece(fetch);
    if (result)
        nvt_tier_fail(fetch->tier,
                      "the record at %" PRIu64 " of the log cannot be read, or is damaged: it has "
                      "the %" PRIu64 " bytes of FILE from %" PRIu64 " on. Read what the others "
                      "have, or start it with drop-damaged, to go on without that one",
                      fetch->position, extent->len_bytes, extent->offset);
    run_has_piece(fetch);
}

static void flow_read_piece(struct nvt_tier_run *run, const struct nvt_tier_extent *piece,
                            uint8_t *to)
{
    struct nvt_tier *tier = run->tier;
    const uint64_t position = piece->position + NVT_TIER_HEAD_BYTES + piece->skip_bytes;
    if (nvt_tier_stage_read(tier, position, to, (uint32_t)piece->len_bytes))
        return;
    const struct nvt_tier_part part = {.extent = *piece,
                                       .skip_bytes = piece->skip_bytes,
                                       .bytes = (uint32_t)piece->len_bytes,
                                       .to = to,
                                       .run = run,
                                       .done = run_record_read};
    run->reads_left++;
    if (nvt_tier_fetch_record(tier, &part))
        return;
    run->reads_left--;
    nvt_tier_fail(tier, "no memory");
}

static void start_run(struct nvt_tier_run *run, uint32_t pieces_count)
{
    struct nvt_tier *tier = run->tier;
    const struct nvt_tier_extent *pieces = tier->pieces;
    run->is_busy = true;
    tier->runs_busy++;
    tier->run_end = tier->end;
    run->kind = pieces[0].kind;
    run->offset = pieces[0].offset;
    run->len_bytes = 0;
    run->reads_left = 1; /* until all have begun */
    for (uint32_t i = 0; i < pieces_count; i++) {
        if (run->kind == NVT_TIER_WRITE)
            flow_read_piece(run, &pieces[i], run->data + run->len_bytes);
        run->len_bytes += pieces[i].len_bytes;
    }
    if (!--run->reads_left)
        write_run(run);
}

/* ---- the steps ---- */

static void slot_is_there(struct nvt_tier *tier)
{
    go_next(tier);
}

static void flow_begin_batch(struct nvt_tier *tier)
{
    struct nvt_tier_mark done = tier->answered;
    done.time_ns = tier->now_ns;
    if (!nvt_tier_destage_begin(&tier->destage, &tier->index, tier->super.ring_bytes, tier->head,
                                &done, !list_is_empty(&tier->waiting) && nvt_tier_is_short(tier)))
        return;
    tier->slot.is_destaging = true;
    nvt_tier_copies_write_slot(tier, slot_is_there);
}

static void flush_done(struct nvt_io *flush, uint16_t status)
{
    struct nvt_tier *tier = LIST_MEMBER(flush, struct nvt_tier, flush);
    struct nvt_tier_turn turn;
    nvt_tier_enter(tier, &turn, flush->uring);
    tier->is_flushing = false;
    if (status)
        nvt_tier_fail(tier, "FILE cannot be flushed: %s", why_of(tier, status));
    else
        go_next(tier);
    nvt_tier_leave(tier);
}

static void sync_file(struct nvt_tier *tier)
{
    (void)nvt_tier_destage_next(&tier->destage);
    tier->flush =
        (struct nvt_io){.kind = NVT_FLUSH, .address = tier, .host = tier, .done = flush_done};
    nvt_tier_ask_file(tier, &tier->flush);
}

static uint32_t runs_depth(const struct nvt_tier *tier)
{
    return writes_are_awaited(tier) || tier->destage.is_hurried
               ? NVT_TIER_RUNS
               : nvt_tier_destage_depth(tier->super.ring_bytes, tier->end - tier->head,
                                        NVT_TIER_RUNS);
}

static void write_runs(struct nvt_tier *tier)
{
    const uint32_t depth = runs_depth(tier);
    tier->wants_runs = false;
    atomic_store_explicit(&tier->is_paced, false, memory_order_relaxed);
    for (uint32_t i = 0; i < NVT_TIER_RUNS && tier->phase == NVT_TIER_SERVING; i++) {
        if (tier->runs_busy >= depth)
            return;
        if (tier->runs[i].is_busy)
            continue;
        const uint32_t count =
            nvt_tier_destage_take(&tier->destage, &tier->index, NVT_TIER_RUN_BYTES, tier->pieces);
        if (count) {
            start_run(&tier->runs[i], count);
            if (!writes_are_awaited(tier)) {
                tier->wants_runs = true;
                return;
            }
        } else if (!tier->runs_busy)
            return sync_file(tier);
        else
            return;
    }
}

static bool is_ahead_of_pace(const struct nvt_tier *tier)
{
    return tier->end - tier->run_end <
           nvt_tier_destage_pace(tier->super.ring_bytes, tier->end - tier->head);
}

void nvt_tier_note_write(struct nvt_tier *tier, const struct nvt_uring *uring)
{
    atomic_store_explicit(&tier->writer, uring, memory_order_relaxed);
    atomic_store_explicit(&tier->wrote_ns, tier->now_ns, memory_order_relaxed);
    if (!tier->is_paced || is_ahead_of_pace(tier))
        return;
    atomic_store_explicit(&tier->is_paced, false, memory_order_relaxed);
    tier->wants_runs = tier->destage.step == NVT_TIER_WRITING;
}

void nvt_tier_go_at_pace(struct nvt_tier *tier)
{
    const bool is_paced = tier->destage.step == NVT_TIER_WRITING && !writes_are_awaited(tier) &&
                          !tier->destage.is_hurried && !nvt_tier_is_silent(tier, tier->now_ns) &&
                          is_ahead_of_pace(tier);
    if (!is_paced)
        return nvt_tier_flow(tier);
    tier->wants_runs = false;
    atomic_store_explicit(&tier->is_paced, true, memory_order_relaxed);
}

void nvt_tier_stamped(struct nvt_tier *tier, const struct nvt_tier_stamp *stamp, int error)
{
    tier->is_stamping = false;
    if (error)
        return nvt_tier_fail(tier, "FILE cannot be looked at: %s", strerror(error));
    tier->slot.stamp = *stamp;
    go_next(tier);
}

static void flow_look_at_file(struct nvt_tier *tier)
{
    if (tier->stamp)
        tier->stamp(tier);
    else
        nvt_tier_stamped(tier, &tier->slot.stamp, 0);
}

/* Readers that begin from now on are counted apart. */
static void drain_readers(struct nvt_tier *tier)
{
    if (!tier->is_draining)
        tier->parity ^= 1;
    tier->is_draining = tier->readers[tier->parity ^ 1] > 0;
    if (!tier->is_draining)
        go_next(tier);
}

static void end_batch(struct nvt_tier *tier)
{
    tier->head = tier->destage.until.position;
    tier->is_trimming = false;
    (void)nvt_tier_destage_next(&tier->destage);
    nvt_tier_go_on(tier);
    nvt_tier_flow(tier);
}

static void flow_trim_log(struct nvt_tier *tier)
{
    tier->slot.head = tier->destage.until.position;
    tier->slot.check = tier->destage.until.check;
    tier->slot.head_epoch = tier->destage.until.epoch;
    tier->slot.is_destaging = false;
    nvt_tier_copies_write_slot(tier, end_batch);
}

/* Nothing of the tier's own is under way, so it may be closed. */
static bool flow_is_quiet(const struct nvt_tier *tier)
{
    bool is_moving = tier->runs_busy || tier->is_flushing || tier->is_stamping || tier->stalled;
    for (uint32_t i = 0; i < tier->copies_count; i++) {
        const struct nvt_tier_copy *copy = &tier->copies[i];
        is_moving =
            is_moving || copy->is_catching_up || copy->is_slot_moving || copy->flights_count;
    }
    return !is_moving;
}

static void end_detach(struct nvt_tier *tier)
{
    struct nvt_io *leaver = tier->leaver;
    const bool is_done = tier->phase == NVT_TIER_SERVING && tier->destage.step == NVT_TIER_IDLE &&
                         !tier->index.dirty_bytes && list_is_empty(&tier->waiting) &&
                         list_is_empty(&tier->logging) && list_is_empty(&tier->answering);
    const bool has_failed = tier->phase == NVT_TIER_FAILED;
    if (!leaver || (!is_done && !has_failed) || !flow_is_quiet(tier))
        return;
    tier->leaver = NULL;
    tier->is_whole = is_done;
    nvt_tier_io_end(tier, leaver, is_done ? 0 : NVME_SC_INTERNAL);
}

/* What is under way ends; the next target finds the rest in the log. */
static void hand_log_over(struct nvt_tier *tier)
{
    if (tier->phase == NVT_TIER_SERVING)
        tier->phase = NVT_TIER_FAILED;
}

void nvt_tier_flow(struct nvt_tier *tier)
{
    if (tier->leaver && tier->hands_over)
        hand_log_over(tier);
    if (tier->leaver)
        end_detach(tier);
    if (tier->phase != NVT_TIER_SERVING) {
        tier->wants_runs = false; /* or the thread would look for ever */
        atomic_store_explicit(&tier->is_paced, false, memory_order_relaxed);
        return;
    }
    switch (tier->destage.step) {
    case NVT_TIER_IDLE:
        return flow_begin_batch(tier);
    case NVT_TIER_WRITING:
        return write_runs(tier);
    case NVT_TIER_STAMPING:
        if (!tier->is_stamping) {
            tier->is_stamping = true;
            flow_look_at_file(tier);
        }
        return;
    case NVT_TIER_DRAINING:
    case NVT_TIER_DRAINING_FOUND:
        return drain_readers(tier);
    case NVT_TIER_DROPPING:
        if (!nvt_tier_index_drop(&tier->index, tier->destage.until.position,
                                 writes_are_awaited(tier) ? DROPS_AWAITED : DROPS))
            go_next(tier);
        return;
    case NVT_TIER_TRIMMING:
        if (!tier->is_trimming) {
            tier->is_trimming = true;
            flow_trim_log(tier);
        }
        return;
    case NVT_TIER_OPENING:
    case NVT_TIER_SYNCING: /* what is under way goes on */
        return;
    }
}
