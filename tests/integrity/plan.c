/* SPDX-License-Identifier: BSD-2-Clause */
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void plan_open(struct plan *plan, uint64_t seed, uint32_t len_max, bool is_iwarp)
{
    memset(plan, 0, sizeof(*plan));
    plan->random.state = seed;
    plan->len_max = len_max;
    plan->is_iwarp = is_iwarp;
    for (int side = 0; side < 2; side++)
        for (int buf = 0; buf < ARENA_BUFS; buf++) {
            plan->shadows[side][buf] = calloc(1, arena_block_bytes(buf));
            VU_CHECK(plan->shadows[side][buf], "out of memory");
            plan->reregister[side][buf] = true;
        }
}

void plan_close(struct plan *plan)
{
    for (int side = 0; side < 2; side++)
        for (int buf = 0; buf < ARENA_BUFS; buf++)
            free(plan->shadows[side][buf]);
}

static uint32_t below(struct plan *plan, uint32_t bound)
{
    return vu_random_below(&plan->random, bound);
}

/* Lengths where things change: nothing, a few bytes, about a ring record, about a page, long. */
static uint32_t draw_length(struct plan *plan)
{
    uint32_t len;
    switch (below(plan, 8)) {
    case 0:
        len = below(plan, 3) ? 1 + below(plan, 16) : 0;
        break;
    case 1:
    case 2:
        len = 1 + below(plan, 600);
        break;
    case 3:
        len = 200 + below(plan, 60);
        break;
    case 4:
        len = 4000 + below(plan, 300);
        break;
    case 5:
    case 6:
        len = 1 + below(plan, 40000);
        break;
    default:
        len = 1 + below(plan, plan->len_max);
        break;
    }
    return len < plan->len_max ? len : plan->len_max;
}

/* Takes unused bytes of the side's arena; less than asked for when none has so many left. */
static struct piece draw_piece(struct plan *plan, int side, uint32_t len, uint32_t align)
{
    int buf = (int)below(plan, ARENA_BUFS);
    struct piece piece = {0};
    for (int tries = 0; tries < ARENA_BUFS; tries++, buf = (buf + 1) % ARENA_BUFS) {
        struct extent extent = plan->extents[side][buf];
        uint32_t at = plan->cursors[side][buf] + below(plan, 3) * below(plan, 70);
        at = (at + align - 1) / align * align;
        uint32_t end = extent.start + extent.len_bytes;
        uint32_t left = at < end ? end - at : 0;
        uint32_t take = len < left ? len : left;
        if (take <= piece.len_bytes)
            continue;
        bool in_both = at + take <= extent.start + extent.len_bytes - extent.len_bytes / 3;
        piece = (struct piece){.offset = at,
                               .len_bytes = take,
                               .buf = (uint8_t)buf,
                               .region = in_both && below(plan, 2)};
        if (take == len)
            break;
    }
    if (piece.len_bytes)
        plan->cursors[side][piece.buf] = piece.offset + piece.len_bytes;
    return piece;
}

/* Splits `len` over pieces of the side's arena. Returns how many; *got is their sum (less than
 * `len` when the arena is full). */
static int draw_list(struct plan *plan, int side, uint32_t len, struct piece *pieces, uint32_t *got)
{
    int wanted = 1 + (int)below(plan, PLAN_SGES), count = 0;
    *got = 0;
    while (*got < len && count < wanted) {
        uint32_t left = len - *got;
        uint32_t part = count == wanted - 1 || left == 1 ? left : 1 + below(plan, left);
        struct piece piece = draw_piece(plan, side, part, 1);
        if (piece.len_bytes == 0)
            break;
        pieces[count++] = piece;
        *got += piece.len_bytes;
    }
    return count;
}

static bool is_atomic(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static void cut_list(struct op *op, uint32_t len)
{
    op->len_bytes = len;
    for (int i = 0; i < op->local_count; i++) {
        if (op->local[i].len_bytes >= len) {
            op->local[i].len_bytes = len;
            op->local_count = len ? i + 1 : 0;
            return;
        }
        len -= op->local[i].len_bytes;
    }
}

static void draw_receive(struct plan *plan, int side, struct op *op, bool written)
{
    op->takes_receive = true;
    uint32_t extra = below(plan, 3) ? 0 : below(plan, 1000), got = 0;
    uint32_t wanted = written ? below(plan, 2) * 100 : op->len_bytes + extra;
    op->recv_count = draw_list(plan, !side, wanted, op->recv, &got);
    if (!written && got < op->len_bytes)
        cut_list(op, got);
}

/* The first operation of a QP that may repeat its word, or NULL. */
static const struct op *earlier_atomic(const struct plan *plan, int side, int qp, int count)
{
    for (int i = 0; i < count; i++)
        if (plan->ops[side][i].qp == qp && is_atomic(plan->ops[side][i].opcode))
            return &plan->ops[side][i];
    return NULL;
}

static bool draw_atomic(struct plan *plan, int side, struct op *op, const struct op *earlier)
{
    op->local[0] = draw_piece(plan, side, 8, 1);
    op->local_count = 1;
    op->remote = earlier && below(plan, 2) ? earlier->remote : draw_piece(plan, !side, 8, 8);
    op->len_bytes = 8;
    op->swap = vu_random(&plan->random);
    op->compare_add = vu_random(&plan->random);
    return op->local[0].len_bytes == 8 && op->remote.len_bytes == 8;
}

static const enum ibv_wr_opcode opcodes[] = {
    IBV_WR_SEND,
    IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD,
};

static const enum ibv_wr_opcode iwarp_opcodes[] = {IBV_WR_SEND, IBV_WR_SEND, IBV_WR_RDMA_WRITE,
                                                   IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};

static enum ibv_wr_opcode draw_opcode(struct plan *plan)
{
    if (plan->is_iwarp)
        return iwarp_opcodes[below(plan, sizeof(iwarp_opcodes) / sizeof(iwarp_opcodes[0]))];
    return opcodes[below(plan, sizeof(opcodes) / sizeof(opcodes[0]))];
}

static bool draw_op(struct plan *plan, int side, struct op *op, int count)
{
    memset(op, 0, sizeof(*op));
    op->opcode = draw_opcode(plan);
    op->qp = (int)below(plan, PLAN_QPS);
    op->imm = (uint32_t)vu_random(&plan->random);
    op->flags = (below(plan, 3) ? IBV_SEND_SIGNALED : 0) |
                (below(plan, 4) ? 0 : IBV_SEND_SOLICITED) | (below(plan, 6) ? 0 : IBV_SEND_FENCE);
    if (is_atomic(op->opcode))
        return draw_atomic(plan, side, op, earlier_atomic(plan, side, op->qp, count));
    op->local_count = draw_list(plan, side, draw_length(plan), op->local, &op->len_bytes);
    if (plan->is_iwarp && op->opcode == IBV_WR_RDMA_READ && op->local_count > 1)
        cut_list(op, op->local[0].len_bytes);
    bool send = op->opcode == IBV_WR_SEND || op->opcode == IBV_WR_SEND_WITH_IMM;
    if (!send) {
        op->remote = draw_piece(plan, !side, op->len_bytes, 1);
        cut_list(op, op->remote.len_bytes);
    }
    if (send || op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
        draw_receive(plan, side, op, !send);
    if (op->opcode != IBV_WR_RDMA_READ && op->len_bytes <= PLAN_INLINE_BYTES && below(plan, 2))
        op->flags |= IBV_SEND_INLINE;
    return true;
}

/* After a READ, a fenced WRITE that sends on what it brought. */
static bool draw_dependent(struct plan *plan, int side, struct op *op, const struct op *read)
{
    *op = *read;
    op->opcode = IBV_WR_RDMA_WRITE;
    op->flags = IBV_SEND_FENCE | (below(plan, 2) ? IBV_SEND_SIGNALED : 0);
    op->remote = draw_piece(plan, !side, op->len_bytes, 1);
    cut_list(op, op->remote.len_bytes);
    return true;
}

static void draw_ops(struct plan *plan, int side)
{
    int wanted = 1 + (int)below(plan, PLAN_OPS), count = 0;
    struct op *ops = plan->ops[side];
    while (count < wanted) {
        bool after_read =
            count > 0 && ops[count - 1].opcode == IBV_WR_RDMA_READ && below(plan, 3) == 0;
        if (!(after_read ? draw_dependent(plan, side, &ops[count], &ops[count - 1])
                         : draw_op(plan, side, &ops[count], count)))
            break;
        count++;
    }
    for (int qp = 0; qp < PLAN_QPS; qp++) /* the last of each QP tells that all are done */
        for (int i = count - 1; i >= 0; i--)
            if (ops[i].qp == qp) {
                ops[i].flags |= IBV_SEND_SIGNALED;
                break;
            }
    plan->op_count[side] = count;
}

static void draw_extents(struct plan *plan, int side)
{
    for (int buf = 0; buf < ARENA_BUFS; buf++) {
        plan->reregister[side][buf] |= below(plan, 10) == 0;
        if (!plan->reregister[side][buf])
            continue;
        uint32_t block = arena_block_bytes(buf), lead_max = block < 20000 ? block / 6 : 9000;
        struct extent extent = {.start = below(plan, lead_max)};
        extent.len_bytes = block - extent.start - below(plan, lead_max);
        plan->extents[side][buf] = extent;
    }
}

static void refresh(struct plan *plan, int side, int own_side, struct arena *arena)
{
    for (int i = 0; i < 12; i++) {
        int buf = (int)below(plan, ARENA_BUFS);
        uint32_t at = below(plan, arena_block_bytes(buf));
        uint32_t len = 1 + below(plan, arena_block_bytes(buf) - at);
        len = len < 100000 ? len : 100000;
        vu_random_fill(&plan->random, plan->shadows[side][buf] + at, len);
        if (side == own_side)
            memcpy(arena->blocks[buf] + at, plan->shadows[side][buf] + at, len);
    }
}

void plan_draw(struct plan *plan, int side, struct arena *arena)
{
    for (int each = 0; each < 2; each++) {
        draw_extents(plan, each);
        refresh(plan, each, side, arena);
        for (int buf = 0; buf < ARENA_BUFS; buf++) {
            struct extent extent = plan->extents[each][buf];
            plan->cursors[each][buf] =
                extent.start + below(plan, 2) * below(plan, extent.len_bytes / 2);
        }
    }
    draw_ops(plan, 0);
    draw_ops(plan, 1);
}

/* Copies `len` bytes from one list of pieces to another. */
static void copy_lists(uint8_t *const *to, const struct piece *dst, uint8_t *const *from,
                       const struct piece *src, uint32_t len)
{
    uint32_t d = 0, s = 0;
    while (len > 0) {
        uint32_t n = len;
        n = n < dst->len_bytes - d ? n : dst->len_bytes - d;
        n = n < src->len_bytes - s ? n : src->len_bytes - s;
        memcpy(to[dst->buf] + dst->offset + d, from[src->buf] + src->offset + s, n);
        len -= n;
        d += n;
        s += n;
        if (d == dst->len_bytes) {
            dst++;
            d = 0;
        }
        if (s == src->len_bytes) {
            src++;
            s = 0;
        }
    }
}

static void apply(struct plan *plan, int side, const struct op *op)
{
    uint8_t **here = plan->shadows[side], **there = plan->shadows[!side];
    if (is_atomic(op->opcode)) {
        uint8_t *word = there[op->remote.buf] + op->remote.offset;
        uint64_t value, old;
        memcpy(&old, word, 8);
        value = op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? old + op->compare_add
                : old == op->compare_add                  ? op->swap
                                                          : old;
        memcpy(word, &value, 8);
        memcpy(here[op->local[0].buf] + op->local[0].offset, &old, 8);
    } else if (op->opcode == IBV_WR_RDMA_READ) {
        copy_lists(here, op->local, there, &op->remote, op->len_bytes);
    } else if (op->opcode == IBV_WR_SEND || op->opcode == IBV_WR_SEND_WITH_IMM) {
        copy_lists(there, op->recv, here, op->local, op->len_bytes);
    } else {
        copy_lists(there, &op->remote, here, op->local, op->len_bytes);
    }
}

void plan_apply(struct plan *plan)
{
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < plan->op_count[side]; i++)
            apply(plan, side, &plan->ops[side][i]);
}

static bool covers(const struct piece *piece, int buf, uint32_t offset)
{
    return piece->buf == buf && offset >= piece->offset &&
           offset < piece->offset + piece->len_bytes;
}

/* Which operation was to touch this byte of the side's arena. */
static void print_owner(const struct plan *plan, int side, int buf, uint32_t offset)
{
    for (int by = 0; by < 2; by++)
        for (int i = 0; i < plan->op_count[by]; i++) {
            const struct op *op = &plan->ops[by][i];
            bool touched = by != side && op->remote.len_bytes && covers(&op->remote, buf, offset);
            for (int p = 0; p < PLAN_SGES; p++)
                touched |= by == side ? p < op->local_count && covers(&op->local[p], buf, offset)
                                      : p < op->recv_count && covers(&op->recv[p], buf, offset);
            if (touched)
                fprintf(stderr,
                        "  in reach of op %d of side %c: opcode %d, %u bytes, flags 0x%x, qp %d, "
                        "%d elements\n",
                        i, 'a' + by, (int)op->opcode, op->len_bytes, op->flags, op->qp,
                        op->local_count);
        }
}

void plan_compare(const struct plan *plan, int side, const struct arena *arena)
{
    for (int buf = 0; buf < ARENA_BUFS; buf++) {
        const uint8_t *real = arena->blocks[buf], *shadow = plan->shadows[side][buf];
        uint32_t len = arena_block_bytes(buf), at = 0;
        if (memcmp(real, shadow, len) == 0)
            continue;
        while (real[at] == shadow[at])
            at++;
        uint32_t end = len;
        while (real[end - 1] == shadow[end - 1])
            end--;
        struct extent extent = plan->extents[side][buf];
        print_owner(plan, side, buf, at);
        VU_FAIL("memory of kind '%s' is wrong from byte %u to %u (address %p; region %u..%u): "
                "0x%02x, not 0x%02x",
                arena_kind(buf), at, end, (const void *)(real + at), extent.start,
                extent.start + extent.len_bytes, real[at], shadow[at]);
    }
}

uint64_t plan_digest_shadow(const struct plan *plan, int side)
{
    uint64_t digest = 0;
    for (int buf = 0; buf < ARENA_BUFS; buf++)
        digest = vu_digest(digest, plan->shadows[side][buf], arena_block_bytes(buf));
    return digest;
}

uint64_t plan_digest_arena(const struct arena *arena)
{
    uint64_t digest = 0;
    for (int buf = 0; buf < ARENA_BUFS; buf++)
        digest = vu_digest(digest, arena->blocks[buf], arena_block_bytes(buf));
    return digest;
}
