/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/store/room.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/minmax.h"
#include "snapshot/store/superblock.h"

enum { WORD_BITS = 64 };

static void count_free(struct snap_room *room)
{
    uint64_t taken = 0;
    for (uint64_t i = 0; i < room->words; i++)
        taken += (uint64_t)__builtin_popcountll(room->taken[i]);
    room->free_blocks = room->words * WORD_BITS - taken;
}

void snap_room_clear(struct snap_room *room)
{
    memset(room->taken, 0, room->words * sizeof(*room->taken));
    snap_marks_add(room->taken, 0, SNAP_SUPERBLOCKS);
    if (room->blocks % WORD_BITS != 0)
        room->taken[room->words - 1] |= ~UINT64_C(0) << (room->blocks % WORD_BITS);
    room->low = 0;
    room->high = room->words - 1;
    count_free(room);
}

int snap_room_open(struct snap_room *room, uint64_t blocks)
{
    assert(blocks >= SNAP_VOLUME_BLOCKS_MIN);
    *room = (struct snap_room){.blocks = blocks, .words = (blocks + WORD_BITS - 1) / WORD_BITS};
    room->taken = calloc(room->words, sizeof(*room->taken));
    if (room->taken == NULL)
        return -ENOMEM;
    snap_room_clear(room);
    return 0;
}

void snap_room_close(struct snap_room *room)
{
    free(room->taken);
    *room = (struct snap_room){0};
}

static bool is_block_taken(const struct snap_room *room, uint64_t block)
{
    return (room->taken[block / WORD_BITS] >> (block % WORD_BITS) & 1) != 0;
}

void snap_marks_add(uint64_t *marks, uint64_t block, uint64_t blocks)
{
    for (uint64_t end = block + blocks; block < end;) {
        uint64_t bit = block % WORD_BITS, bits = mover_min_u64(WORD_BITS - bit, end - block);
        marks[block / WORD_BITS] |= ~UINT64_C(0) >> (WORD_BITS - bits) << bit;
        block += bits;
    }
}

void snap_room_add(struct snap_room *room, const uint64_t *marks)
{
    for (uint64_t i = 0; i < room->words; i++)
        room->taken[i] |= marks[i];
    count_free(room);
}

void snap_room_give(struct snap_room *room, uint64_t block, uint64_t blocks)
{
    for (uint64_t end = block + blocks; block < end; block++) {
        assert(is_block_taken(room, block) && block < room->blocks);
        room->taken[block / WORD_BITS] &= ~(UINT64_C(1) << (block % WORD_BITS));
        room->free_blocks++;
    }
}

/* How many blocks are free from `block` on, up to `max`. */
static uint64_t free_run(const struct snap_room *room, uint64_t block, uint64_t max)
{
    uint64_t run = 0;
    while (run < max && block + run < room->blocks) {
        uint64_t at = block + run, bit = at % WORD_BITS;
        uint64_t taken = room->taken[at / WORD_BITS] >> bit;
        if (taken != 0)
            return mover_min_u64(run + (uint64_t)__builtin_ctzll(taken), max);
        run += WORD_BITS - bit;
    }
    return mover_min_u64(run, max);
}

static void take_run(struct snap_room *room, uint64_t block, uint64_t blocks)
{
    snap_marks_add(room->taken, block, blocks);
    room->free_blocks -= blocks;
}

uint64_t snap_room_take(struct snap_room *room, uint64_t want, uint64_t *block)
{
    enum { LOOKS_MAX = 4096 }; /* runs that are looked at before the longest of them will do */
    uint64_t best = 0, best_run = 0;
    uint32_t looks = 0;
    for (uint64_t i = 0; i < room->words && best_run < want && looks < LOOKS_MAX; i++) {
        uint64_t word = (room->low + i) % room->words;
        uint64_t is_free = ~room->taken[word];
        while (is_free != 0 && best_run < want && looks < LOOKS_MAX) {
            uint64_t bit = (uint64_t)__builtin_ctzll(is_free);
            uint64_t run = free_run(room, word * WORD_BITS + bit, want);
            if (run > best_run) {
                best = word * WORD_BITS + bit;
                best_run = run;
            }
            looks++;
            is_free = bit + run < WORD_BITS ? is_free & (~UINT64_C(0) << (bit + run)) : 0;
        }
    }
    if (best_run == 0)
        return 0;
    take_run(room, best, best_run);
    room->low = (best + best_run) / WORD_BITS % room->words;
    *block = best;
    return best_run;
}

/* The highest run of that length in blocks [from, end), or false. */
static bool find_down(const struct snap_room *room, uint64_t from, uint64_t end, uint64_t blocks,
                      uint64_t *block)
{
    uint64_t run = 0;
    for (uint64_t at = end; at > from;) {
        uint64_t word = room->taken[(at - 1) / WORD_BITS];
        if (at % WORD_BITS == 0 && at - from >= WORD_BITS && (word == 0 || ~word == 0)) {
            run = word == 0 ? run + WORD_BITS : 0;
            at -= WORD_BITS;
        } else {
            at--;
            run = is_block_taken(room, at) ? 0 : run + 1;
        }
        if (run >= blocks) {
            *block = at + run - blocks;
            return true;
        }
    }
    return false;
}

bool snap_room_take_run(struct snap_room *room, uint64_t blocks, uint64_t *block)
{
    uint64_t end = mover_min_u64((room->high + 1) * WORD_BITS, room->blocks);
    if (blocks == 0 || blocks > room->free_blocks)
        return false;
    if (!find_down(room, 0, end, blocks, block) && !find_down(room, 0, room->blocks, blocks, block))
        return false;
    take_run(room, *block, blocks);
    room->high = (*block + blocks - 1) / WORD_BITS;
    return true;
}
