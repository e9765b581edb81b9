/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The plan of the integrity test. Both sides draw the same rounds from the same seed, and both keep
 * shadows of both arenas on which they carry out the operations with plain memcpy: the model.
 * Within a round no byte is used by two operations, except where order is promised: atomics of one
 * QP on one word, and a fenced WRITE of what the READ before it brought.
 */
#ifndef SW_TESTS_INTEGRITY_PLAN_H
#define SW_TESTS_INTEGRITY_PLAN_H

#include "arena.h"

#define PLAN_QPS 3
#define PLAN_OPS 24 /* of one side in one round */
#define PLAN_SGES 6
#define PLAN_INLINE_BYTES 400

struct piece {
    uint32_t offset, len_bytes; /* in the block */
    uint8_t buf;
    uint8_t region; /* 0 or 1: by which of the buffer's keys */
};

struct op {
    enum ibv_wr_opcode opcode;
    unsigned int flags; /* IBV_SEND_* */
    int qp;
    uint32_t len_bytes;
    int local_count;
    struct piece local[PLAN_SGES]; /* at the initiator */
    struct piece remote;           /* one-sided */
    bool takes_receive;
    int recv_count;
    struct piece recv[PLAN_SGES]; /* at the target; may be longer than the message */
    uint32_t imm;
    uint64_t compare_add, swap;
};

struct plan {
    struct vu_random random;
    uint32_t len_max;
    bool is_iwarp;                  /* no immediate data, no atomics, READs into one piece */
    bool reregister[2][ARENA_BUFS]; /* before this round */
    struct extent extents[2][ARENA_BUFS];
    int op_count[2];
    struct op ops[2][PLAN_OPS]; /* by initiating side */
    uint8_t *shadows[2][ARENA_BUFS];
    uint32_t cursors[2][ARENA_BUFS]; /* next unused byte in this round */
};

/* len_max: longest message. */
void plan_open(struct plan *plan, uint64_t seed, uint32_t len_max, bool is_iwarp);
void plan_close(struct plan *plan);
/* Draws the next round; fresh random data goes to the shadows (and, on `side`, to its arena). */
void plan_draw(struct plan *plan, int side, struct arena *arena);
/* Carries the round's operations out on the shadows. */
void plan_apply(struct plan *plan);
/* Fails the test if the arena differs from its shadow anywhere, guards included. */
void plan_compare(const struct plan *plan, int side, const struct arena *arena);
uint64_t plan_digest_shadow(const struct plan *plan, int side);
uint64_t plan_digest_arena(const struct arena *arena);

#endif
