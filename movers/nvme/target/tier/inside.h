/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of a tier call of each other. The lock is held in all of it. */
#ifndef SW_MOVERS_NVME_TIER_INSIDE_H
#define SW_MOVERS_NVME_TIER_INSIDE_H

#include "nvme/target/tier/tier.h"

/* turn.c */
void nvt_tier_enter(struct nvt_tier *tier, struct nvt_tier_turn *turn, struct nvt_uring *uring);
void nvt_tier_leave(struct nvt_tier *tier); /* the lock is not held any more */
void nvt_tier_op_end(struct nvt_tier_op *op, uint16_t status);
void nvt_tier_io_end(struct nvt_tier *tier, struct nvt_io *io, uint16_t status);
/* FILE gets it when the lock is released. */
void nvt_tier_ask_file(struct nvt_tier *tier, struct nvt_io *lower);
/* A thread that has the tier for the first time looks after it from then on. False: no memory. */
bool nvt_tier_take_seat(struct nvt_tier *tier, struct nvt_uring *uring);
/* Nothing is written from now on. */
__attribute__((format(printf, 2, 3))) void nvt_tier_fail(struct nvt_tier *tier, const char *format,
                                                         ...);

/* append.c */
void nvt_tier_append(struct nvt_tier_op *op);
/* There may be room: what waits goes on. */
void nvt_tier_go_on(struct nvt_tier *tier);
/* `acked` has moved: answers, and extents for the index. */
void nvt_tier_answer(struct nvt_tier *tier);
/* The index learns what was answered. Nobody may look into it before. */
void nvt_tier_index_answered(struct nvt_tier *tier);
/* Writes that are in the log of too few copies end with an error. */
void nvt_tier_end_logging(struct nvt_tier *tier);
/* Ends requests that wait and that nobody wants any more. */
void nvt_tier_end_unwanted(struct nvt_tier *tier);
/* The log has no room for the next write, or the index has not. */
bool nvt_tier_is_short(const struct nvt_tier *tier);
/* The head of a record of the writer alone. */
void nvt_tier_append_begin(struct nvt_tier *tier);

/* copies.c */
void nvt_tier_copies_kick(struct nvt_tier *tier);
void nvt_tier_copies_write_slot(struct nvt_tier *tier, void (*done)(struct nvt_tier *tier));
void nvt_tier_copies_tick(struct nvt_tier *tier);
/* The position that the slowest live copy has. */
uint64_t nvt_tier_copies_slowest(const struct nvt_tier *tier);

/* fetch.c: reads of the log, from any copy that has it. */
/* NULL: no memory. `place_bytes`: room for a whole record, 0: none. */
struct nvt_tier_fetch *nvt_tier_fetch_take(struct nvt_tier *tier, uint32_t place_bytes);
void nvt_tier_fetch_give(struct nvt_tier_fetch *fetch);
/* From `position` on; done() gives it back. May end at once. */
void nvt_tier_fetch_start(struct nvt_tier_fetch *fetch, uint8_t *to, uint64_t position,
                          uint32_t bytes, void (*done)(struct nvt_tier_fetch *fetch, int result));
/* All of the record is read, and proved: part->done() is told -EIO where no copy has it as it was
 * written. May end at once. False: no memory. */
bool nvt_tier_fetch_record(struct nvt_tier *tier, const struct nvt_tier_part *part);
/* Asks again for requests that wait for copies which were away. */
void nvt_tier_fetch_again(struct nvt_tier *tier);
/* What the stage still has of it. False: not all. */
bool nvt_tier_stage_read(const struct nvt_tier *tier, uint64_t position, uint8_t *to,
                         uint32_t bytes);

/* read.c */
void nvt_tier_read(struct nvt_tier_op *op);

/* flow.c */
void nvt_tier_flow(struct nvt_tier *tier);
/* Begins the next write to FILE, if it is its time; by a poll. */
void nvt_tier_go_at_pace(struct nvt_tier *tier);
/* A host has written. */
#define NVT_TIER_SILENT_NS 100000ull /* since the last write: hosts have a pause */
static inline bool nvt_tier_is_silent(const struct nvt_tier *tier, uint64_t now_ns)
{
    return now_ns >=
           atomic_load_explicit(&tier->wrote_ns, memory_order_relaxed) + NVT_TIER_SILENT_NS;
}
void nvt_tier_note_write(struct nvt_tier *tier, const struct nvt_uring *uring);
void nvt_tier_stamped(struct nvt_tier *tier, const struct nvt_tier_stamp *stamp, int error);

/* walk.c */
int nvt_tier_walk_begin(struct nvt_tier *tier);
bool nvt_tier_walk_step(struct nvt_tier *tier);
void nvt_tier_walk_end(struct nvt_tier *tier);

#endif
