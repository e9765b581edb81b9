/* SPDX-License-Identifier: BSD-2-Clause */
#include "disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/store/superblock.h"

enum { PENDING_MAX = 256, SECTOR = 512 };

struct disk_pending {
    struct snap_io *io;
    uint32_t log_count; /* of a flush: so many writes were done before */
};

struct disk_handle {
    struct snap_medium medium;
    struct disk *disk;
    uint64_t number;
    struct disk_pending pending[PENDING_MAX];
    uint32_t pending_count;
};

uint64_t random_next(struct random *random)
{
    /* xorshift64* */
    random->state ^= random->state >> 12;
    random->state ^= random->state << 25;
    random->state ^= random->state >> 27;
    return random->state * UINT64_C(0x2545F4914F6CDD1D);
}

uint32_t random_below(struct random *random, uint32_t below)
{
    return (uint32_t)((random_next(random) >> 32) % below);
}

bool random_is(struct random *random, uint32_t percent)
{
    return random_below(random, 100) < percent;
}

void disk_make(struct disk *disk, uint64_t seed, uint64_t bytes)
{
    *disk = (struct disk){.random = {.state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1},
                          .bytes = bytes,
                          .live = calloc(1, bytes),
                          .settled = calloc(1, bytes),
                          .has_fencing = true};
    if (disk->live == NULL || disk->settled == NULL)
        abort();
}

static void drop_log(struct disk *disk, uint32_t count)
{
    if (disk->log_count == 0)
        return;
    for (uint32_t i = 0; i < count; i++)
        free(disk->log[i].data);
    memmove(disk->log, disk->log + count, (disk->log_count - count) * sizeof(*disk->log));
    disk->log_count -= count;
}

void disk_free(struct disk *disk)
{
    drop_log(disk, disk->log_count);
    free(disk->log);
    free(disk->live);
    free(disk->settled);
}

static void log_write(struct disk *disk, const struct snap_io *io)
{
    if (disk->log_count == disk->log_capacity) {
        disk->log_capacity = disk->log_capacity * 2 + 16;
        disk->log = realloc(disk->log, disk->log_capacity * sizeof(*disk->log));
        if (disk->log == NULL)
            abort();
    }
    struct disk_write write = {.offset = io->offset, .bytes = io->bytes, .data = malloc(io->bytes)};
    if (write.data == NULL)
        abort();
    memcpy(write.data, io->data, io->bytes);
    disk->log[disk->log_count++] = write;
}

static bool is_superblock_logged(const struct disk *disk, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (disk->log[i].offset < SNAP_SUPERBLOCKS * SNAP_BLOCK_BYTES)
            return true;
    return false;
}

static void settle_log(struct disk *disk, uint32_t count)
{
    if (count > disk->log_count)
        count = disk->log_count; /* another flush came first */
    if (count == 0 || (disk->skips_first_flush && !is_superblock_logged(disk, count)))
        return;
    for (uint32_t i = 0; i < count; i++)
        memcpy(disk->settled + disk->log[i].offset, disk->log[i].data, disk->log[i].bytes);
    drop_log(disk, count);
}

static int execute_io(struct disk *disk, const struct disk_pending *pending)
{
    const struct snap_io *io = pending->io;
    if (disk->fail_at != 0 && disk->ios == disk->fail_at)
        return -EIO;
    switch (io->kind) {
    case SNAP_IO_WRITE:
        memcpy(disk->live + io->offset, io->data, io->bytes);
        disk->live[io->offset + 9] ^= disk->flips_write > 0 && --disk->flips_write == 0;
        log_write(disk, io);
        disk->written_bytes += io->bytes;
        if (io->offset < SNAP_SUPERBLOCKS * SNAP_BLOCK_BYTES && disk->cut_superblock != 0 &&
            --disk->cut_superblock == 0)
            disk->cut_at =
                disk->ios + 1 + (random_is(&disk->random, 60) ? 0 : random_below(&disk->random, 4));
        return 0;
    case SNAP_IO_READ:
        memcpy(io->data, disk->live + io->offset, io->bytes);
        return 0;
    case SNAP_IO_FLUSH:
        settle_log(disk, pending->log_count);
        return 0;
    case SNAP_IO_CHECK:
        break;
    }
    return -EOPNOTSUPP;
}

static int use_memory(struct snap_medium *medium, void *data, size_t bytes)
{
    (void)medium;
    (void)data;
    (void)bytes;
    return 0;
}

static void submit_io(struct snap_medium *medium, struct snap_io *io)
{
    struct disk_handle *handle = (struct disk_handle *)medium;
    if (handle->pending_count == PENDING_MAX || io->offset + io->bytes > handle->disk->bytes ||
        (io->offset | io->bytes | (uintptr_t)io->data) % SNAP_BLOCK_BYTES != 0)
        abort();
    handle->pending[handle->pending_count++] =
        (struct disk_pending){.io = io, .log_count = handle->disk->log_count};
}

static void poll_disk(struct snap_medium *medium)
{
    struct disk_handle *handle = (struct disk_handle *)medium;
    struct disk *disk = handle->disk;
    uint32_t count = handle->pending_count;
    if (count > 1)
        count = 1 + random_below(&disk->random, count);
    for (uint32_t i = 0; i < count && handle->pending_count > 0; i++) {
        uint32_t chosen = random_below(&disk->random, handle->pending_count);
        int result;
        disk->ios++;
        if (disk->cut_at != 0 && disk->ios >= disk->cut_at)
            disk->is_cut = true;
        if (disk->is_cut)
            return;
        struct disk_pending pending = handle->pending[chosen];
        handle->pending[chosen] = handle->pending[--handle->pending_count];
        if (disk->has_fencing && handle->number != disk->open_count)
            result = -ESTALE;
        else
            result = execute_io(disk, &pending);
        pending.io->done(pending.io, result);
    }
}

static bool arm_disk(struct snap_medium *medium)
{
    (void)medium;
    return false;
}

static void close_disk(struct snap_medium *medium)
{
    struct disk_handle *handle = (struct disk_handle *)medium;
    while (handle->pending_count > 0) {
        struct snap_io *io = handle->pending[--handle->pending_count].io;
        io->done(io, -ECANCELED);
    }
    free(handle);
}

struct snap_medium *disk_open(struct disk *disk)
{
    static const struct snap_medium_ops OPS = {.use = use_memory,
                                               .submit = submit_io,
                                               .poll = poll_disk,
                                               .arm = arm_disk,
                                               .close = close_disk};
    struct disk_handle *handle = calloc(1, sizeof(*handle));
    if (handle == NULL)
        abort();
    handle->disk = disk;
    handle->number = ++disk->open_count;
    handle->medium = (struct snap_medium){.ops = &OPS,
                                          .name = "disk",
                                          .bytes = disk->bytes,
                                          .is_writable = true,
                                          .reads_back = disk->reads_back,
                                          .fd = -1};
    return &handle->medium;
}

/* Blocks of a write are there, or not, or some of their sectors are. */
static void apply_some(struct disk *disk, uint64_t offset, const uint8_t *data, uint32_t bytes,
                       uint32_t percent)
{
    for (uint32_t at = 0; at < bytes; at += SNAP_BLOCK_BYTES) {
        bool is_torn = random_is(&disk->random, 35) && percent != 0 && percent != 100;
        bool is_there = random_is(&disk->random, percent);
        for (uint32_t sector = 0; sector < SNAP_BLOCK_BYTES; sector += SECTOR)
            if (is_torn ? random_is(&disk->random, 50) : is_there)
                memcpy(disk->settled + offset + at + sector, data + at + sector, SECTOR);
    }
}

void disk_power_cut(struct disk *disk, struct snap_medium *const *handles, uint32_t handles_count)
{
    static const uint32_t PERCENTS[] = {0, 100, 50, 90, 10};
    uint32_t percent = PERCENTS[random_below(&disk->random, 5)];
    for (uint32_t i = 0; i < disk->log_count; i++)
        apply_some(disk, disk->log[i].offset, disk->log[i].data, disk->log[i].bytes, percent);
    for (uint32_t i = 0; i < handles_count; i++) {
        struct disk_handle *handle = (struct disk_handle *)handles[i];
        for (uint32_t k = 0; k < handle->pending_count; k++) {
            const struct snap_io *io = handle->pending[k].io;
            if (io->kind == SNAP_IO_WRITE && handle->number == disk->open_count)
                apply_some(disk, io->offset, io->data, io->bytes, percent);
        }
    }
    drop_log(disk, disk->log_count);
    memcpy(disk->live, disk->settled, disk->bytes);
    disk->cut_at = 0;
    disk->cut_superblock = 0;
    disk->fail_at = 0;
    disk->is_cut = false;
    disk->open_count++; /* handles that were open are of no use any more */
    disk->has_fencing = true;
}
