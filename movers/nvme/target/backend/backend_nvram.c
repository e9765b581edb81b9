/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `nvram:PATH`: a mapping of a file, on a DAX file system of persistent memory itself. A write is
 * safe after a flush: by MAP_SYNC it needs no system call (the processor's caches are written
 * back), else msync() or fsync() does it. A call that may wait for a disk does so off the loop, by
 * io_uring.
 *
 * The file has all its blocks before it is served, and keeps them: a hole would need one at a time
 * when there may be none. Where that is so nevertheless, or the file has become shorter, the
 * command that meets it fails (guard.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nvme/types.h>

#include "common/base/minmax.h"
#include "common/serve/disk.h"
#include "common/serve/holes.h"
#include "common/serve/served.h"
#include "nvme/target/backend/backends.h"
#include "nvme/target/backend/claim.h"
#include "nvme/target/backend/disk.h"
#include "nvme/target/backend/guard.h"
#include "nvme/target/backend/owed.h"
#include "nvme/target/backend/slices.h"
#include "nvme/target/backend/uring.h"
#include "nvme/target/backend/zeroing.h"

enum {
    BLOCK_BYTES = 4096,
    VERIFY_BYTES = 256 << 10, /* in one slice */
    SHORT_BYTES = 1 << 20,    /* whose caches are written back within a slice */
};

struct nvram {
    struct nvt_backend backend;
    int fd;
    bool is_dax; /* MAP_SYNC: a flush waits for no disk */
    size_t mapped_bytes;
};

/* Why there was no page. */
static uint16_t nvram_fault_status(const struct nvram *nvram, const struct nvt_io *io)
{
    const bool is_write = io->kind != NVT_READ && io->kind != NVT_VERIFY;
    struct stat stat;
    const bool is_inside = !fstat(nvram->fd, &stat) && stat.st_size >= 0 &&
                           io->offset + io->len_bytes <= (uint64_t)stat.st_size;
    return nvt_backend_status(is_write && is_inside ? ENOSPC : EIO, is_write);
}

/* ---- flush ---- */

struct sync_op {
    struct mover_ring_op op; /* must be first */
    struct nvt_io *io;
    const struct nvram *nvram;
    struct nvt_line *line;
    uint64_t offset, len_bytes;
};

static void nvram_end_sync(struct sync_op *sync, uint16_t status)
{
    struct nvt_io *io = sync->io;
    free(sync);
    io->done(io, status);
}

static void nvram_sync_done(struct mover_ring_op *op, int result)
{
    struct sync_op *sync = (struct sync_op *)op;
    nvt_lines_give(&sync->io->uring->chores, sync->line);
    nvram_end_sync(sync, nvt_disk_end_flush(sync->nvram->backend.watched, NVT_FLUSH, result));
}

static bool nvram_begin_sync(struct nvt_io *io)
{
    struct sync_op *sync = io->owner;
    const uint16_t status = io->given_up ? io->given_up(io) : 0;
    if (status) {
        nvram_end_sync(sync, status);
        return true;
    }
    sync->line = nvt_lines_take(&io->uring->chores);
    struct io_uring_sqe *sqe = nvt_uring_entry(io->uring, &sync->op);
    io_uring_prep_fsync(sqe, sync->nvram->fd, IORING_FSYNC_DATASYNC);
    if (sync->len_bytes <= UINT32_MAX) { /* else all of the file */
        sqe->off = sync->offset;
        sqe->len = (uint32_t)sync->len_bytes;
    }
    return true;
}

static void sync_by_uring(const struct nvram *nvram, struct nvt_io *io, uint64_t offset,
                          uint64_t len_bytes)
{
    struct sync_op *sync = malloc(sizeof(*sync));
    if (!sync)
        return io->done(io, NVME_SC_INTERNAL);
    *sync = (struct sync_op){.op.complete = nvram_sync_done,
                             .io = io,
                             .nvram = nvram,
                             .offset = offset,
                             .len_bytes = len_bytes};
    io->owner = sync;
    if (!nvt_lines_add(&io->uring->chores, nvram->backend.disk, io, nvram_begin_sync, true))
        nvram_end_sync(sync, NVME_SC_INTERNAL);
}

/* Ends the operation. */
static void sync_range(const struct nvram *nvram, struct nvt_io *io, uint64_t offset,
                       uint64_t len_bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), begin = offset / page * page;
    if (!nvram->is_dax || len_bytes > SHORT_BYTES)
        return sync_by_uring(nvram, io, begin, offset - begin + len_bytes);
    const int rc = msync(nvram->backend.memory + begin, offset - begin + len_bytes, MS_SYNC);
    io->done(io, nvt_disk_end_flush(nvram->backend.watched, NVT_FLUSH, rc ? -errno : 0));
}

static void end_write(const struct nvram *nvram, struct nvt_io *io)
{
    if (io->is_durable)
        sync_range(nvram, io, io->offset, io->len_bytes);
    else
        io->done(io, 0);
}

/* ---- the others ---- */

static bool nvram_zero_step(struct nvt_io *io)
{
    struct nvram *nvram = io->owner;
    const struct nvt_zeroing zeroing = {.base = nvram->backend.memory, .fd = nvram->fd};
    const uint64_t end = io->offset + io->len_bytes;
    const int64_t next = nvt_zeroing_step(&zeroing, io->offset + io->moved, end);
    if (next >= 0 && (uint64_t)next < end) {
        io->moved = (uint64_t)next - io->offset;
        return false;
    }
    if (next < 0)
        io->done(io, nvram_fault_status(nvram, io));
    else
        end_write(nvram, io);
    return true;
}

static bool nvram_verify_step(struct nvt_io *io)
{
    struct nvram *nvram = io->owner;
    const uint64_t left = mover_min_u64(io->len_bytes - io->moved, VERIFY_BYTES);
    if (!nvt_guard_touch(nvram->backend.memory + io->offset + io->moved, left, false)) {
        io->done(io, nvram_fault_status(nvram, io));
        return true;
    }
    io->moved += left;
    if (io->moved < io->len_bytes)
        return false;
    io->done(io, 0);
    return true;
}

static void backend_nvram_submit_io(struct nvt_backend *backend, struct nvt_io *io)
{
    struct nvram *nvram = (struct nvram *)backend;
    io->owner = nvram;
    io->moved = 0;
    switch (io->kind) {
    case NVT_READ:
    case NVT_WRITE:
        if (!nvt_memory_move(backend, io))
            io->done(io, nvram_fault_status(nvram, io));
        else if (io->kind == NVT_WRITE)
            end_write(nvram, io);
        else
            io->done(io, 0);
        return;
    case NVT_WRITE_ZEROES:
    case NVT_DEALLOCATE: /* reads as zeroes from then on; the file keeps its blocks */
        return nvt_slices_add(io->slices, io, nvram_zero_step);
    case NVT_VERIFY:
        return nvt_slices_add(io->slices, io, nvram_verify_step);
    case NVT_FLUSH:
        return sync_by_uring(nvram, io, 0, backend->size_bytes);
    }
}

static uint16_t nvram_reach(struct nvt_backend *backend, const struct nvt_io *io)
{
    return nvt_guard_touch(backend->memory + io->offset, io->len_bytes, io->kind == NVT_WRITE)
               ? 0
               : nvram_fault_status((struct nvram *)backend, io);
}

/* ---- opening ---- */

static int nvram_no_space(const char *path, uint64_t missing, char *error, size_t error_size)
{
    snprintf(error, error_size,
             "%s: has %llu MiB of holes, and its file system has no room for them: free some, or "
             "make the file shorter (truncate -s SIZE %s)",
             path, (unsigned long long)((missing + (1 << 20) - 1) >> 20), path);
    return -ENOSPC;
}

/* A file system that knows no fallocate() leaves the holes to the writers. */
static int nvram_fill_holes(int fd, const char *path, char *error, size_t error_size)
{
    uint64_t holes;
    const int rc = mover_holes_fill(fd, &holes);
    if (rc == -ENOSPC || rc == -EDQUOT)
        return nvram_no_space(path, holes, error, error_size);
    return rc == -EOPNOTSUPP ? 0 : rc;
}

static int nvram_open_file(struct nvram *nvram, const struct nvt_backend_setup *setup, char *error,
                           size_t error_size)
{
    nvram->fd = open(setup->path, (setup->is_read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
    struct stat stat;
    if (nvram->fd < 0 || fstat(nvram->fd, &stat))
        return -errno;
    const uint32_t block = setup->block_bytes ? setup->block_bytes : BLOCK_BYTES;
    const uint64_t size = (uint64_t)stat.st_size / block * block;
    if (!size || !S_ISREG(stat.st_mode)) {
        snprintf(error, error_size, "%s: is no file of at least one block: truncate -s 1G %s",
                 setup->path, setup->path);
        return -EINVAL;
    }
    nvram->backend.disk = stat.st_dev;
    nvram->mapped_bytes = size;
    nvram->backend.size_bytes = size;
    nvram->backend.block_bytes = block;
    int rc = nvt_claim_take(setup, &nvram->backend.claim, error, error_size);
    if (!rc)
        rc = nvt_owed_refuse(setup, error, error_size);
    if (!rc)
        (void)mover_served_mark_io(nvram->fd); /* where it cannot be, no group has it (fence.h) */
    return rc || setup->is_read_only ? rc
                                     : nvram_fill_holes(nvram->fd, setup->path, error, error_size);
}

static int backend_nvram_map_file(struct nvram *nvram)
{
    const int prot = nvram->backend.is_read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    const size_t size = nvram->mapped_bytes;
    void *memory = mmap(NULL, size, prot, MAP_SHARED_VALIDATE | MAP_SYNC, nvram->fd, 0);
    nvram->is_dax = memory != MAP_FAILED;
    if (memory == MAP_FAILED)
        memory = mmap(NULL, size, prot, MAP_SHARED, nvram->fd, 0);
    if (memory == MAP_FAILED)
        return -errno;
    nvram->backend.memory = memory;
    const int rc = nvt_disk_open(nvram->fd, !nvram->is_dax, &nvram->backend.watched);
    return rc ? rc : nvt_guard_open();
}

static void close_nvram(struct nvt_backend *backend)
{
    struct nvram *nvram = (struct nvram *)backend;
    if (backend->memory)
        munmap(backend->memory, nvram->mapped_bytes);
    if (nvram->fd >= 0)
        close(nvram->fd);
    nvt_disk_close(backend->watched);
    nvt_claim_release(backend->claim);
    free(nvram);
}

static int open_nvram(const struct nvt_backend_setup *setup, struct nvt_backend **out, char *error,
                      size_t error_size)
{
    *error = 0;
    if (!setup->path || !*setup->path) {
        snprintf(error, error_size, "nvram: needs a path");
        return -EINVAL;
    }
    struct nvram *nvram = calloc(1, sizeof(*nvram));
    if (!nvram)
        return -ENOMEM;
    nvram->backend = (struct nvt_backend){.ops = &nvt_nvram,
                                          .is_read_only = setup->is_read_only,
                                          .is_volatile = true,
                                          .can_deallocate = true,
                                          .frees_to_zeroes = true};
    int rc = nvram_open_file(nvram, setup, error, error_size);
    if (!rc)
        rc = backend_nvram_map_file(nvram);
    if (rc) {
        if (!*error)
            snprintf(error, error_size, "%s cannot be mapped: %s", setup->path, mover_disk_why(rc));
        close_nvram(&nvram->backend);
        return rc;
    }
    *out = &nvram->backend;
    return 0;
}

const struct nvt_backend_ops nvt_nvram = {.kind = "nvram",
                                          .open = open_nvram,
                                          .close = close_nvram,
                                          .submit = backend_nvram_submit_io,
                                          .reach = nvram_reach};
