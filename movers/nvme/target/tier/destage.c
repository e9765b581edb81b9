/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/tier/destage.h"

#include <assert.h>

#include "common/base/minmax.h"

enum { BATCHES_OF_RING = 8 };

#define MARK_NS 1000000000ull

void nvt_tier_destage_init(struct nvt_tier_destage *destage, uint64_t ring_bytes)
{
    *destage = (struct nvt_tier_destage){.mark_bytes = ring_bytes / 64};
}

void nvt_tier_destage_note(struct nvt_tier_destage *destage, const struct nvt_tier_mark *mark)
{
    struct nvt_tier_mark *marks = destage->marks;
    if (destage->marks_count) {
        const struct nvt_tier_mark *last = &marks[destage->marks_count - 1];
        if (mark->position - last->position < destage->mark_bytes &&
            mark->time_ns - last->time_ns < MARK_NS)
            return;
    }
    if (destage->marks_count == NVT_TIER_MARKS) { /* every other one goes */
        for (uint32_t i = 0; i < NVT_TIER_MARKS / 2; i++)
            marks[i] = marks[2 * i + 1];
        destage->marks_count = NVT_TIER_MARKS / 2;
    }
    marks[destage->marks_count++] = *mark;
}

uint64_t nvt_tier_destage_since(const struct nvt_tier_destage *destage, uint64_t position,
                                uint64_t now_ns)
{
    uint64_t since = destage->marks_count ? destage->marks[0].time_ns : now_ns;
    for (uint32_t i = 0; i < destage->marks_count && destage->marks[i].position <= position; i++)
        since = destage->marks[i].time_ns;
    return since;
}

/* The furthest place that is at most a part of the ring away, but one at least. */
static struct nvt_tier_mark choose_until(const struct nvt_tier_destage *destage,
                                         uint64_t ring_bytes, uint64_t head,
                                         const struct nvt_tier_mark *done)
{
    if (done->position - head <= ring_bytes / BATCHES_OF_RING)
        return *done;
    struct nvt_tier_mark until = *done;
    for (uint32_t i = destage->marks_count; i > 0; i--) {
        const struct nvt_tier_mark *mark = &destage->marks[i - 1];
        if (mark->position <= head)
            break;
        if (mark->position < until.position)
            until = *mark;
        if (mark->position - head <= ring_bytes / BATCHES_OF_RING)
            break;
    }
    return until;
}

static void forget_marks(struct nvt_tier_destage *destage, uint64_t head)
{
    uint32_t gone = 0, kept = 0;
    while (gone < destage->marks_count && destage->marks[gone].position <= head)
        gone++;
    gone -= gone > 0; /* the last one before says since when what follows has waited */
    while (gone + kept < destage->marks_count) {
        destage->marks[kept] = destage->marks[gone + kept];
        kept++;
    }
    destage->marks_count = kept;
}

bool nvt_tier_destage_begin(struct nvt_tier_destage *destage, const struct nvt_tier_index *index,
                            uint64_t ring_bytes, uint64_t head, const struct nvt_tier_mark *done,
                            bool is_awaited)
{
    assert(destage->step == NVT_TIER_IDLE);
    if (done->position == head)
        return false;
    const uint64_t oldest = nvt_tier_index_oldest(index);
    const bool is_old =
        oldest != UINT64_MAX &&
        done->time_ns - nvt_tier_destage_since(destage, oldest, done->time_ns) >= NVT_TIER_AGE_NS;
    if (!is_awaited && !destage->is_hurried && !is_old &&
        done->position - head < ring_bytes / NVT_TIER_EASY_OF_RING)
        return false;
    forget_marks(destage, head);
    destage->until = choose_until(destage, ring_bytes, head, done);
    destage->cursor = 0;
    destage->step = NVT_TIER_OPENING;
    return true;
}

static bool has_payload(const struct nvt_tier_extent *extent)
{
    return extent->kind == NVT_TIER_WRITE;
}

uint32_t nvt_tier_destage_take(struct nvt_tier_destage *destage, const struct nvt_tier_index *index,
                               uint64_t bytes_max, struct nvt_tier_extent pieces[NVT_TIER_PIECES])
{
    assert(destage->step == NVT_TIER_WRITING);
    uint32_t count = 0;
    uint64_t bytes = 0;
    struct nvt_tier_extent extent;
    while (count < NVT_TIER_PIECES &&
           nvt_tier_index_next_before(index, destage->cursor, destage->until.position, &extent)) {
        if (count && (extent.offset != destage->cursor || !has_payload(&extent) ||
                      bytes + extent.len_bytes > bytes_max))
            break;
        pieces[count++] = extent;
        bytes += extent.len_bytes;
        destage->cursor = extent.offset + extent.len_bytes;
        if (!has_payload(&extent))
            break;
    }
    return count;
}

/* Each write to FILE costs the thread of the hosts two or three of theirs, and the processor a
 * switch to the system's worker that ends it. So FILE gets few at a time while the log has room. */
uint32_t nvt_tier_destage_depth(uint64_t ring_bytes, uint64_t used_bytes, uint32_t runs_max)
{
    enum { GENTLE = 2, BRISK = 8 };
    if (used_bytes < ring_bytes / 2)
        return mover_min_u32(GENTLE, runs_max);
    return used_bytes < ring_bytes / 4 * 3 ? mover_min_u32(BRISK, runs_max) : runs_max;
}

/* To write a block to FILE takes the processor for as long as several writes of a host. The log is
 * there to keep that away from them: while they write, and half of it is free, FILE gets one write
 * for each 64 of theirs. From then on it gets more the fuller the log is. */
uint64_t nvt_tier_destage_pace(uint64_t ring_bytes, uint64_t used_bytes)
{
    enum { EASY_BYTES = 256 << 10 };
    const uint64_t half = ring_bytes / 2, quarter = ring_bytes / 4;
    if (used_bytes <= half)
        return EASY_BYTES;
    const uint64_t left = half + quarter - mover_min_u64(used_bytes, half + quarter);
    return EASY_BYTES * (left >> 10) / (quarter >> 10);
}

enum nvt_tier_step nvt_tier_destage_next(struct nvt_tier_destage *destage)
{
    assert(destage->step != NVT_TIER_IDLE);
    destage->step = destage->step == NVT_TIER_TRIMMING ? NVT_TIER_IDLE : destage->step + 1;
    return destage->step;
}
