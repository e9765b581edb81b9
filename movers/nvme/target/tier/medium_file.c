/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A copy of a log in a file or on a device of this machine. Where the mapping is the memory itself
 * (DAX; tmpfs and the like, which do not outlive the power) bytes are stored there without a system
 * call. DAX needs them written back from the processor's caches; memory that goes with the power
 * does not: what was stored outlives the process either way. Else io_uring writes and flushes them
 * (RWF_DSYNC), by a worker: the call may wait.
 *
 * All blocks are allocated when it is opened, so the file system's lack of room is told then.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "common/base/minmax.h"
#include "common/serve/disk.h"
#include "common/serve/holes.h"
#include "common/serve/served.h"
#include "nvme/target/backend/guard.h"
#include "nvme/target/tier/inside.h"
#include "nvme/target/tier/medium.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { WRITES = 2, LINE_BYTES = 64, AHEAD_BYTES = 64 << 10, WARM_BYTES = 256 << 10 };

struct file_medium {
    struct nvt_tier_medium medium; /* must be first */
    int fd;
    uint8_t *memory;     /* NULL: not mapped */
    uint64_t mapped_end; /* pages before it are in this process's page table, as far as it wrote */
    uint64_t warm_end;   /* multiple of a page */
};

#if defined(__x86_64__)
__attribute__((target("clwb"))) static void write_back_lines(const uint8_t *at, const uint8_t *end)
{
    for (; at < end; at += LINE_BYTES)
        _mm_clwb((void *)(uintptr_t)at);
}

static bool has_clwb(void)
{
    static int known = -1; /* each thread finds the same */
    unsigned a, b, c, d;
    int has = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (has < 0) {
        has = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 24 & 1);
        __atomic_store_n(&known, has, __ATOMIC_RELAXED);
    }
    return has;
}

static void write_back(const void *data, uint64_t bytes)
{
    const uintptr_t first = (uintptr_t)data & ~(uintptr_t)(LINE_BYTES - 1);
    const uint8_t *at = (const uint8_t *)first, *end = (const uint8_t *)data + bytes;
    if (has_clwb())
        write_back_lines(at, end);
    else
        for (; at < end; at += LINE_BYTES)
            _mm_clflush(at);
    _mm_sfence();
}
#else
static void write_back(const void *data, uint64_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)data & ~(page - 1);
    (void)msync((void *)first, (uintptr_t)data + bytes - first, MS_SYNC);
}
#endif

/* ---- mapped ---- */

/* A log that is new is written page by page, and each page that is touched for the first time costs
 * more than the copy. A handful at a time costs a quarter of that. Where the system refuses, they
 * are touched one by one. */
static void map_ahead(struct file_medium *file, uint64_t at, uint64_t end)
{
    const uint64_t page = 4096, first = at > file->mapped_end ? at & ~(page - 1) : file->mapped_end;
    const uint64_t until =
        mover_min_u64((end + AHEAD_BYTES) & ~(page - 1), file->medium.size_bytes & ~(page - 1));
    if (until > first)
        (void)madvise(file->memory + first, until - first, MADV_POPULATE_WRITE);
    file->mapped_end = mover_max_u64(until, end);
}

/* All pages of a new log at once cost a host's write nothing later: 2 us each. */
static bool medium_file_warm_up(struct nvt_tier_medium *medium)
{
    struct file_medium *file = (struct file_medium *)medium;
    const uint64_t bytes =
        file->memory ? mover_min_u64(WARM_BYTES, medium->size_bytes - file->warm_end) : 0;
    if (!bytes || madvise(file->memory + file->warm_end, bytes, MADV_POPULATE_WRITE))
        return false;
    file->warm_end += bytes;
    file->mapped_end = mover_max_u64(file->mapped_end, file->warm_end);
    return true;
}

static int move_mapped(struct file_medium *file, bool is_write, uint64_t at, void *data,
                       uint32_t bytes)
{
    if (is_write && at + bytes > file->mapped_end)
        map_ahead(file, at, at + bytes);
    if (is_write ? !nvt_guard_write(file->memory + at, data, bytes)
                 : !nvt_guard_read(data, file->memory + at, bytes))
        return -EIO;
    if (is_write && !file->medium.is_volatile)
        write_back(file->memory + at, bytes);
    return 0;
}

/* ---- by io_uring ---- */

static void send_move(struct nvt_tier_move *move);

static void medium_file_complete(struct mover_ring_op *op, int result)
{
    struct nvt_tier_move *move = (struct nvt_tier_move *)op;
    struct nvt_tier *tier = move->medium->tier;
    struct nvt_tier_turn turn;
    nvt_tier_enter(tier, &turn, move->uring);
    if (result > 0)
        move->moved += (uint32_t)result;
    if (result == -EINTR || result == -EAGAIN || (result > 0 && move->moved < move->bytes))
        send_move(move);
    else
        move->done(move, result < 0 ? result : result ? 0 : -EIO);
    nvt_tier_leave(tier);
}

static void send_move(struct nvt_tier_move *move)
{
    const struct file_medium *file = (const struct file_medium *)move->medium;
    uint8_t *data = (uint8_t *)move->data + move->moved;
    const unsigned left = move->bytes - move->moved;
    move->op.complete = medium_file_complete;
    struct io_uring_sqe *sqe = nvt_uring_entry(move->uring, &move->op);
    if (move->is_write) {
        io_uring_prep_write(sqe, file->fd, data, left, move->at + move->moved);
        sqe->rw_flags = RWF_DSYNC;
    } else {
        io_uring_prep_read(sqe, file->fd, data, left, move->at + move->moved);
    }
    io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
}

static bool medium_file_start(struct nvt_tier_medium *medium, struct nvt_tier_move *move)
{
    struct file_medium *file = (struct file_medium *)medium;
    move->moved = 0;
    if (!file->memory) {
        send_move(move);
        return false;
    }
    move->result = move_mapped(file, move->is_write, move->at, move->data, move->bytes);
    return true;
}

static int medium_file_now(struct nvt_tier_medium *medium, bool is_write, uint64_t at, void *data,
                           uint32_t bytes)
{
    struct file_medium *file = (struct file_medium *)medium;
    if (file->memory)
        return move_mapped(file, is_write, at, data, bytes);
    const ssize_t moved = is_write ? pwrite(file->fd, data, bytes, (off_t)at)
                                   : pread(file->fd, data, bytes, (off_t)at);
    if (moved < 0 || (is_write && fdatasync(file->fd)))
        return -errno;
    return (size_t)moved == bytes ? 0 : -EIO;
}

static void medium_file_close(struct nvt_tier_medium *medium)
{
    struct file_medium *file = (struct file_medium *)medium;
    if (file->memory)
        munmap(file->memory, medium->size_bytes);
    if (file->fd >= 0)
        close(file->fd);
    free(file);
}

/* ---- opening ---- */

static int measure_medium(struct file_medium *file, char *error, size_t error_size)
{
    struct stat stat;
    uint64_t bytes;
    if (fstat(file->fd, &stat))
        return -errno;
    bytes = (uint64_t)stat.st_size;
    if (S_ISBLK(stat.st_mode) && ioctl(file->fd, BLKGETSIZE64, &bytes))
        return -errno;
    if (S_ISREG(stat.st_mode) && bytes) {
        const int rc = mover_holes_fill_all(file->fd, file->medium.name, false, error, error_size);
        if (rc)
            return rc;
    }
    if (!bytes) {
        snprintf(error, error_size, "the log %s is empty: 'fallocate -l 4G %s' gives it room",
                 file->medium.name, file->medium.name);
        return -EINVAL;
    }
    file->medium.size_bytes = bytes;
    return 0;
}

static int map_medium(struct file_medium *file)
{
    const int prot = PROT_READ | PROT_WRITE;
    const size_t bytes = file->medium.size_bytes;
    void *memory = MAP_FAILED;
    file->medium.is_volatile = mover_disk_is_memory(file->fd);
    if (bytes)
        memory = mmap(NULL, bytes, prot, MAP_SHARED_VALIDATE | MAP_SYNC, file->fd, 0);
    if (memory == MAP_FAILED && bytes && file->medium.is_volatile)
        memory = mmap(NULL, bytes, prot, MAP_SHARED, file->fd, 0);
    file->memory = memory == MAP_FAILED ? NULL : memory;
    return file->memory ? nvt_guard_open() : 0;
}

static const struct nvt_tier_medium_ops file_ops = {.now = medium_file_now,
                                                    .start = medium_file_start,
                                                    .warm_up = medium_file_warm_up,
                                                    .close = medium_file_close};

int nvt_tier_file_open(const char *name, bool is_shared, struct nvt_tier_medium **out, char *error,
                       size_t error_size)
{
    const struct mover_serving how = {.is_shared = is_shared};
    struct file_medium *file = calloc(1, sizeof(*file));
    if (!file)
        return -ENOMEM;
    file->medium = (struct nvt_tier_medium){.ops = &file_ops, .name = name, .writes_max = WRITES};
    file->fd = mover_served_open(name, O_RDWR, &how, error, error_size);
    int rc = file->fd < 0 ? file->fd : measure_medium(file, error, error_size);
    if (!rc)
        rc = map_medium(file);
    if (rc == -ENOENT)
        snprintf(error, error_size, "the log %s is not there: 'fallocate -l 4G %s' makes one", name,
                 name);
    else if (rc && !*error)
        snprintf(error, error_size, "the log %s cannot be opened: %s", name, strerror(-rc));
    if (rc) {
        medium_file_close(&file->medium);
        return rc;
    }
    *out = &file->medium;
    return 0;
}
