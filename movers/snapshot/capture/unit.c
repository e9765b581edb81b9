/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/capture/unit.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "common/base/minmax.h"
#include "common/time/units.h"
#include "snapshot/capture/faults.h"
#include "snapshot/core/medium.h"

enum {
    COPY_BYTES = 256 << 10, /* of one copy of a copier: so many are under way at a time */
    COPIES_MAX = 16,
    READ_TRIES = 3,
    MAPPED_TRIES = 10, /* memory that is just being moved is missing for a moment */
};

/* msync() looks whether all is mapped, and for MS_ASYNC does nothing else. */
static bool test_mapping(const void *data, uint64_t bytes)
{
    const uintptr_t page = 4096, first = (uintptr_t)data & ~(page - 1);
    const uintptr_t end = ((uintptr_t)data + bytes + page - 1) & ~(page - 1);
    return msync((void *)first, end - first, MS_ASYNC) == 0 || errno != ENOMEM;
}

bool snap_is_mapped(const void *data, uint64_t bytes)
{
    for (int i = 0; i < MAPPED_TRIES; i++) {
        if (test_mapping(data, bytes))
            return true;
        nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
    }
    return false;
}

/* Most mistakes are found here; memory that goes later faults (read_guarded()). Small pieces are of
 * the heap. */
static int test_pieces(const struct snap_unit *unit, uint32_t *bad_range)
{
    for (uint32_t i = 0; i < unit->pieces_count; i++) {
        const struct snap_piece *piece = &unit->pieces[i];
        if (piece->bytes >= SNAP_BLOCK_BYTES && !snap_is_mapped(piece->data, piece->bytes)) {
            *bad_range = piece->range;
            return -EFAULT;
        }
    }
    return 0;
}

/* A block that no single piece fills. `piece` is the first one that may have a part of it. */
static void gather_block(const struct snap_unit *unit, uint32_t piece, uint32_t at, uint8_t *block)
{
    const uint32_t end = at + SNAP_BLOCK_BYTES;
    memset(block, 0, SNAP_BLOCK_BYTES);
    for (; piece < unit->pieces_count && unit->pieces[piece].offset < end; piece++) {
        const struct snap_piece *from = &unit->pieces[piece];
        const uint32_t from_end = from->offset + from->bytes;
        const uint32_t first = from->offset > at ? from->offset : at;
        const uint32_t last = mover_min_u32(from_end, end);
        memcpy(block + (first - at), from->data + (first - from->offset), last - first);
    }
}

/* Reads blocks [first, first + count) in runs: into `slot` where there is one, else for sums. */
static void read_blocks(const struct snap_reading *reading, const struct snap_unit *unit,
                        uint32_t first, uint32_t count, uint8_t *slot, struct snap_sum *sums)
{
    _Alignas(64) uint8_t gathered[SNAP_BLOCK_BYTES];
    uint32_t piece = 0;
    for (uint32_t block = first, run; block < first + count; block += run) {
        const uint32_t at = block * SNAP_BLOCK_BYTES;
        while (piece < unit->pieces_count &&
               unit->pieces[piece].offset + unit->pieces[piece].bytes <= at)
            piece++;
        assert(piece < unit->pieces_count);
        const struct snap_piece *from = &unit->pieces[piece];
        const uint32_t whole =
            from->offset > at ? 0 : (from->offset + from->bytes - at) / SNAP_BLOCK_BYTES;
        const uint8_t *source = gathered;
        run = mover_min_u32(whole, first + count - block);
        if (run > 0)
            source = from->data + (at - from->offset);
        else {
            gather_block(unit, piece, at, gathered);
            run = 1;
        }
        struct snap_sum *into = sums + (block - first);
        if (slot)
            reading->ops->copy(&reading->key, slot + at, source, run, into);
        else
            reading->ops->sum(&reading->key, source, run, into);
    }
}

/* The piece that has the address. */
static uint32_t faulty_range(const struct snap_unit *unit, const void *address)
{
    const uintptr_t at = (uintptr_t)address;
    uint32_t found = 0;
    for (uint32_t i = 0; i < unit->pieces_count; i++) {
        const uintptr_t first = (uintptr_t)unit->pieces[i].data;
        if (at >= first && at < first + unit->pieces[i].bytes)
            found = i;
    }
    return unit->pieces[found].range;
}

static int try_reading(const struct snap_reading *reading, const struct snap_unit *unit,
                       uint32_t first, uint32_t count, uint8_t *slot, struct snap_sum *sums,
                       uint32_t *bad_range)
{
    struct snap_fault fault;
    snap_fault_begin(&fault);
    if (sigsetjmp(fault.back, 0)) {
        *bad_range = faulty_range(unit, fault.address);
        return -EFAULT;
    }
    read_blocks(reading, unit, first, count, slot, sums);
    snap_fault_end(&fault);
    return 0;
}

/* Memory that is just being moved, as when it is registered, is there again in a moment. */
static int read_guarded(const struct snap_reading *reading, const struct snap_unit *unit,
                        uint32_t first, uint32_t count, uint8_t *slot, struct snap_sum *sums,
                        uint32_t *bad_range)
{
    int code = test_pieces(unit, bad_range);
    for (int i = 0; i < READ_TRIES && !code; i++) {
        code = try_reading(reading, unit, first, count, slot, sums, bad_range);
        if (!code)
            return 0;
        nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
        code = test_pieces(unit, bad_range);
    }
    return -EFAULT;
}

/* ---- memory of a copier ---- */

static int wait_copies(struct snap_copier *copier, struct snap_copy *copies, uint32_t count)
{
    int code = 0;
    for (uint32_t i = 0; i < count; i++) {
        while (atomic_load_explicit(&copies[i].state, memory_order_acquire) ==
               SNAP_COPY_UNDER_WAY) {
            copier->ops->poll(copier);
            nanosleep(&(struct timespec){.tv_nsec = 10 * NS_PER_US}, NULL);
        }
        if (code == 0)
            code = atomic_load_explicit(&copies[i].state, memory_order_relaxed);
    }
    return code;
}

/* The whole unit; all copies have ended when it returns. */
static int fetch_unit(const struct snap_reading *reading, const struct snap_unit *unit,
                      uint8_t *slot)
{
    struct snap_copier *copier = reading->copier;
    struct snap_copy copies[COPIES_MAX];
    uint32_t count = 0;
    int code = 0;
    memset(slot, 0, (size_t)unit->blocks * SNAP_BLOCK_BYTES);
    for (uint32_t i = 0; i < unit->pieces_count && code == 0; i++) {
        const struct snap_piece *piece = &unit->pieces[i];
        for (uint32_t at = 0; at < piece->bytes && code == 0; at += COPY_BYTES) {
            if (count == COPIES_MAX) {
                code = wait_copies(copier, copies, count);
                count = 0;
            }
            if (code)
                break;
            struct snap_copy *copy = &copies[count];
            *copy = (struct snap_copy){.into = slot + piece->offset + at,
                                       .from = piece->data + at,
                                       .bytes = mover_min_u32(piece->bytes - at, COPY_BYTES),
                                       .state = SNAP_COPY_UNDER_WAY};
            code = copier->ops->start(copier, copy);
            count += code == 0;
        }
    }
    const int waited = wait_copies(copier, copies, count);
    return code ? code : waited;
}

int snap_unit_copy(const struct snap_reading *reading, const struct snap_unit *unit, void *slot,
                   struct snap_sum *sums, uint32_t *bad_range)
{
    if (!unit->is_remote)
        return read_guarded(reading, unit, 0, unit->blocks, slot, sums, bad_range);
    *bad_range = unit->pieces[0].range;
    const int code = fetch_unit(reading, unit, slot);
    if (code == 0)
        reading->ops->sum(&reading->key, slot, unit->blocks, sums);
    return code;
}

int snap_unit_sum(const struct snap_reading *reading, const struct snap_unit *unit, uint32_t first,
                  uint32_t count, void *scratch, struct snap_sum *sums, uint32_t *bad_range)
{
    if (!unit->is_remote)
        return read_guarded(reading, unit, first, count, NULL, sums, bad_range);
    *bad_range = unit->pieces[0].range;
    const int code = fetch_unit(reading, unit, scratch);
    if (code == 0)
        reading->ops->sum(&reading->key, (uint8_t *)scratch + (size_t)first * SNAP_BLOCK_BYTES,
                          count, sums);
    return code;
}
