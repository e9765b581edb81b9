/* SPDX-License-Identifier: BSD-2-Clause */
/* Files and block devices, by io_uring. Short reads and writes go on where they ended. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nvme/types.h>

#include "common/base/minmax.h"
#include "common/serve/disk.h"
#include "common/serve/served.h"
#include "nvme/target/backend/backends.h"
#include "nvme/target/backend/claim.h"
#include "nvme/target/backend/device_key.h"
#include "nvme/target/backend/disk.h"
#include "nvme/target/backend/length.h"
#include "nvme/target/backend/owed.h"
#include "nvme/target/backend/uring.h"

enum { BLOCK_BYTES = 4096, SECTOR_BYTES = 512 };

/* What is zeroed or freed by one call, so that others at the disk wait for no more than that. */
enum { ZEROED_BYTES = 32 << 20, FREED_BYTES = 256 << 20 };

struct file {
    struct nvt_backend backend;
    struct nvt_device_hold hold; /* of a block device in a group */
    int fd;
    bool is_block, is_direct;
    _Atomic bool lacks_nowait; /* the system cannot tell that it would have to wait */
    struct nvt_length *length; /* NULL: of a block device */
    uint32_t align_bytes;      /* of memory and offsets, for O_DIRECT */
    uint32_t short_ppm;        /* of a million requests, for tests */
    uint64_t draw;
};

/* An operation under way. They are kept for the next ones of the thread. */
struct file_op {
    struct mover_ring_op op; /* must be first */
    struct nvt_io *io;
    struct file *file;
    uint8_t *bounce;       /* for memory that O_DIRECT does not take */
    uint8_t *place;        /* of parts.h, for VERIFY */
    struct nvt_line *line; /* it has a place there; NULL: the system may not wait for it */
    bool would_wait;       /* as the system has said */
    bool is_flushing;      /* the zeroes are written, and are to last */
};

static struct file_op *take_op(struct file *file, struct nvt_io *io)
{
    struct file_op *op = (struct file_op *)io->uring->spare;
    if (op)
        io->uring->spare = op->op.next;
    else if (!(op = calloc(1, sizeof(*op))))
        return NULL;
    *op = (struct file_op){.file = file, .io = io};
    return op;
}

static void give_op(struct file_op *op)
{
    struct nvt_uring *uring = op->io->uring;
    free(op->bounce);
    op->op.next = uring->spare;
    uring->spare = &op->op;
}

static void finish_op(struct file_op *op, uint16_t status)
{
    struct nvt_io *io = op->io;
    if (op->bounce && io->kind == NVT_READ && !status)
        memcpy(io->data, op->bounce, io->len_bytes);
    uint8_t *place = op->place;
    give_op(op);
    if (place)
        nvt_parts_give(&io->uring->parts, place);
    io->done(io, status);
}

static void backend_file_go_on(struct file_op *op);
static void file_end_part(struct file_op *op);

static bool is_move(const struct nvt_io *io)
{
    return io->kind == NVT_READ || io->kind == NVT_WRITE || io->kind == NVT_VERIFY;
}

/* Where it waits for a worker of io_uring. */
static struct nvt_lines *file_lines_of(const struct nvt_io *io)
{
    return is_move(io) ? &io->uring->moves : &io->uring->chores;
}

static bool is_flush(const struct file_op *op)
{
    return op->io->kind == NVT_FLUSH || op->is_flushing;
}

static bool is_durable_write(const struct nvt_io *io)
{
    return io->kind == NVT_WRITE && io->is_durable;
}

/* The next piece of WRITE_ZEROES or DEALLOCATE. It ends where a block of the file system does. */
static uint64_t piece_bytes(const struct nvt_io *io)
{
    const uint64_t most = io->kind == NVT_WRITE_ZEROES ? ZEROED_BYTES : FREED_BYTES;
    return mover_min_u64(io->len_bytes - io->moved, most - (io->offset + io->moved) % most);
}

static void end_durable(struct file_op *op, int result)
{
    const enum nvt_io_kind kind = is_flush(op) ? NVT_FLUSH : op->io->kind;
    finish_op(op, nvt_disk_end_flush(op->file->backend.watched, kind, result));
}

static bool is_write(const struct nvt_io *io)
{
    return io->kind != NVT_READ && io->kind != NVT_VERIFY;
}

/* The next one waits in line again, and so does the flush behind the last one. */
static void end_piece(struct file_op *op)
{
    struct nvt_io *io = op->io;
    io->moved += piece_bytes(io);
    op->is_flushing = io->moved == io->len_bytes && io->kind == NVT_WRITE_ZEROES && io->is_durable;
    if (io->moved == io->len_bytes && !op->is_flushing)
        return finish_op(op, 0);
    backend_file_go_on(op);
}

static void backend_file_complete_op(struct mover_ring_op *base, int result)
{
    struct file_op *op = (struct file_op *)base;
    struct nvt_io *io = op->io;
    const bool has_waited = op->line;
    if (has_waited)
        nvt_lines_give(file_lines_of(io), op->line);
    op->line = NULL;
    if (result == -EINTR || result == -EAGAIN) {
        op->would_wait = op->would_wait || !has_waited;
        return backend_file_go_on(op);
    }
    if (result == -EOPNOTSUPP && !has_waited) {
        op->file->lacks_nowait = true;
        return backend_file_go_on(op);
    }
    if (result == -EOPNOTSUPP && io->kind == NVT_WRITE_ZEROES && !io->deallocates &&
        !is_flush(op)) {
        io->deallocates = true; /* a file system without ZERO_RANGE: a hole reads as zeroes, too */
        return backend_file_go_on(op);
    }
    const uint16_t lost = result == -EBADE ? nvt_device_note_conflict(&op->file->hold) : 0;
    if (lost)
        return finish_op(op, lost);
    if (is_flush(op) ||
        (is_durable_write(io) && (result < 0 || io->moved + (uint64_t)result == io->len_bytes)))
        return end_durable(op, result);
    if (result < 0)
        return finish_op(op, nvt_backend_status(-result, is_write(io)));
    if (!is_move(io))
        return end_piece(op);
    if (!result) /* the file has become shorter, or the device is full */
        return finish_op(op, nvt_backend_status(is_write(io) ? ENOSPC : EIO, is_write(io)));
    io->moved += (uint64_t)result;
    op->would_wait = false;
    if (io->moved == io->len_bytes)
        return finish_op(op, 0);
    if (op->place)
        return file_end_part(op);
    backend_file_go_on(op);
}

/* How much the system is asked for: all that is left, or, as a fault by request, a part of it. */
static uint64_t ask_for(struct file *file, uint64_t left)
{
    const uint64_t part = left / 2 / file->backend.block_bytes * file->backend.block_bytes;
    if (!file->short_ppm || !part || !nvt_fault_strikes(&file->draw, file->short_ppm))
        return left;
    return part;
}

/* Without a place in a line it may end with EAGAIN, but not take a worker. With one it goes to the
 * worker at once where the system would wait in this thread, or has said that it would. */
static void flag_move(const struct file_op *op, struct io_uring_sqe *sqe)
{
    const bool is_durable = is_durable_write(op->io);
    sqe->rw_flags = (is_durable ? RWF_DSYNC : 0) | (op->line ? 0 : RWF_NOWAIT);
    if (op->line && (op->would_wait || (is_durable && !op->file->is_direct)))
        io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
}

static void prepare_move(struct file_op *op, struct io_uring_sqe *sqe)
{
    struct nvt_io *io = op->io;
    const uint64_t at = io->offset + io->moved;
    uint64_t left = ask_for(op->file, io->len_bytes - io->moved);
    uint8_t *memory = op->bounce ? op->bounce + io->moved : io->data + io->moved;
    if (io->kind == NVT_VERIFY) {
        left = mover_min_u64(left, NVT_PART_BYTES);
        io_uring_prep_read(sqe, op->file->fd, op->place, (unsigned)left, at);
        return flag_move(op, sqe);
    }
    const bool is_fixed = mover_ring_is_fixed(&io->uring->calls, memory, left);
    if (io->kind == NVT_READ && is_fixed)
        io_uring_prep_read_fixed(sqe, op->file->fd, memory, (unsigned)left, at, 0);
    else if (io->kind == NVT_READ)
        io_uring_prep_read(sqe, op->file->fd, memory, (unsigned)left, at);
    else if (is_fixed)
        io_uring_prep_write_fixed(sqe, op->file->fd, memory, (unsigned)left, at, 0);
    else
        io_uring_prep_write(sqe, op->file->fd, memory, (unsigned)left, at);
    flag_move(op, sqe);
}

static void file_send_op(struct file_op *op)
{
    struct file *file = op->file;
    struct nvt_io *io = op->io;
    op->op.complete = backend_file_complete_op;
    struct io_uring_sqe *sqe = nvt_uring_entry(io->uring, &op->op);
    if (is_flush(op)) {
        io_uring_prep_fsync(sqe, file->fd, IORING_FSYNC_DATASYNC);
        return;
    }
    switch (io->kind) {
    case NVT_READ:
    case NVT_WRITE:
    case NVT_VERIFY:
        prepare_move(op, sqe);
        return;
    case NVT_WRITE_ZEROES:
        io_uring_prep_fallocate(sqe, file->fd,
                                io->deallocates ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
                                                : FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
                                (off_t)(io->offset + io->moved), (off_t)piece_bytes(io));
        return;
    case NVT_DEALLOCATE:
        io_uring_prep_fallocate(sqe, file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                (off_t)(io->offset + io->moved), (off_t)piece_bytes(io));
        return;
    case NVT_FLUSH:
        return;
    }
}

/* Its turn has come. */
static bool file_begin_op(struct nvt_io *io)
{
    struct file_op *op = io->owner;
    const uint16_t status = io->given_up ? io->given_up(io) : 0;
    io->owner = op->file;
    if (status) {
        finish_op(op, status);
        return true;
    }
    op->line = nvt_lines_take(file_lines_of(io));
    file_send_op(op);
    return true;
}

/* Moves of most disks are begun at once: no worker waits for them. */
static void backend_file_go_on(struct file_op *op)
{
    struct nvt_io *io = op->io;
    const struct file *file = op->file;
    if (is_move(io) && file->is_direct && !file->lacks_nowait && !op->would_wait)
        return file_send_op(op);
    io->owner = op;
    if (!nvt_lines_add(file_lines_of(io), file->backend.disk, io, file_begin_op, true))
        finish_op(op, NVME_SC_INTERNAL);
}

static bool wants_bounce(const struct file *file, const struct nvt_io *io)
{
    return (io->kind == NVT_READ || io->kind == NVT_WRITE) && file->is_direct &&
           (uintptr_t)io->data % file->align_bytes;
}

static bool file_begin_part(struct nvt_io *io)
{
    struct file_op *op = take_op(io->owner, io);
    if (op) {
        op->place = nvt_parts_take(&io->uring->parts);
        backend_file_go_on(op);
    } else {
        io->done(io, NVME_SC_INTERNAL);
    }
    return true;
}

static void file_add_part(struct file *file, struct nvt_io *io)
{
    nvt_parts_add(&io->uring->parts, file->backend.disk, io, file_begin_part);
}

static void file_end_part(struct file_op *op)
{
    struct nvt_io *io = op->io;
    struct file *file = op->file;
    uint8_t *place = op->place;
    give_op(op);
    nvt_parts_give(&io->uring->parts, place);
    file_add_part(file, io);
}

static void backend_file_submit_io(struct nvt_backend *backend, struct nvt_io *io)
{
    struct file *file = (struct file *)backend;
    const uint16_t lost = nvt_device_lost_status(&file->hold);
    io->owner = file;
    io->moved = 0;
    if (lost)
        return io->done(io, lost);
    if (io->kind == NVT_VERIFY)
        return file_add_part(file, io);
    struct file_op *op = take_op(file, io);
    if (!op)
        return io->done(io, NVME_SC_INTERNAL);
    if (wants_bounce(file, io)) {
        if (posix_memalign((void **)&op->bounce, BLOCK_BYTES, io->len_bytes)) {
            op->bounce = NULL;
            return finish_op(op, NVME_SC_INTERNAL);
        }
        if (io->kind == NVT_WRITE)
            memcpy(op->bounce, io->data, io->len_bytes);
    }
    backend_file_go_on(op);
}

/* ---- opening ---- */

static int measure_file(struct file *file, const char *path, char *error, size_t error_size)
{
    struct stat stat;
    if (fstat(file->fd, &stat))
        return -errno;
    if (file->is_block != S_ISBLK(stat.st_mode) || (!file->is_block && !S_ISREG(stat.st_mode))) {
        const char *kind = S_ISBLK(stat.st_mode)   ? "; name it by block:"
                           : S_ISREG(stat.st_mode) ? "; name it by file:"
                                                   : ", nor anything else that has blocks";
        snprintf(error, error_size, "%s is no %s%s", path,
                 file->is_block ? "block device" : "plain file", kind);
        return -EINVAL;
    }
    uint64_t size = (uint64_t)stat.st_size;
    int sector = SECTOR_BYTES;
    if (file->is_block &&
        (ioctl(file->fd, BLKGETSIZE64, &size) || ioctl(file->fd, BLKSSZGET, &sector)))
        return -errno;
    file->backend.disk = file->is_block ? stat.st_rdev : stat.st_dev;
    file->align_bytes = (uint32_t)sector;
    file->backend.size_bytes = size;
    return 0;
}

/* O_DIRECT where the file system has it; tmpfs has not. */
static int open_path(struct file *file, const char *path, bool is_read_only)
{
    const int flags = (is_read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_LARGEFILE;
    file->is_direct = true;
    file->fd = open(path, flags | O_DIRECT);
    if (file->fd < 0 && errno == EINVAL) {
        file->is_direct = false;
        file->fd = open(path, flags);
    }
    return file->fd < 0 ? -errno : 0;
}

static int choose_block(struct file *file, uint32_t wanted, const char *path, char *error,
                        size_t error_size)
{
    struct nvt_backend *backend = &file->backend;
    uint32_t block = wanted;
    if (!block)
        block = backend->size_bytes % BLOCK_BYTES ? file->align_bytes : BLOCK_BYTES;
    if (block < file->align_bytes) {
        snprintf(error, error_size, "%s: has blocks of %u bytes, bs=%u is too small", path,
                 file->align_bytes, block);
        return -EINVAL;
    }
    backend->block_bytes = block;
    backend->size_bytes -= backend->size_bytes % block;
    if (!backend->size_bytes) {
        snprintf(error, error_size,
                 "%s: is shorter than a block of %u bytes: make it by truncate -s 1G %s", path,
                 block, path);
        return -EINVAL;
    }
    return 0;
}

static int open_either(const struct nvt_backend_setup *setup, const struct nvt_backend_ops *ops,
                       struct nvt_backend **out, char *error, size_t error_size)
{
    *error = 0;
    if (!setup->path || !*setup->path) {
        snprintf(error, error_size, "%s: needs a path", ops->kind);
        return -EINVAL;
    }
    struct file *file = calloc(1, sizeof(*file));
    if (!file)
        return -ENOMEM;
    setup->uring->wants_buffers = true;
    file->is_block = ops == &nvt_block;
    file->short_ppm = setup->short_ppm;
    file->backend = (struct nvt_backend){.ops = ops,
                                         .is_read_only = setup->is_read_only,
                                         .is_volatile = true,
                                         .can_deallocate = true,
                                         .frees_to_zeroes = true};
    int rc = open_path(file, setup->path, setup->is_read_only);
    if (!rc)
        rc = measure_file(file, setup->path, error, error_size);
    if (!rc)
        rc = choose_block(file, setup->block_bytes, setup->path, error, error_size);
    if (!rc)
        rc = nvt_claim_take(setup, &file->backend.claim, error, error_size);
    if (!rc)
        rc = nvt_owed_refuse(setup, error, error_size);
    if (!rc)
        (void)mover_served_mark_io(file->fd); /* where it cannot be, no group has it (fence.h) */
    if (!rc && setup->shares_as)
        rc = mover_served_mark_process(file->fd, setup->shares_as);
    if (!rc && !file->is_block) {
        file->length =
            nvt_length_open(setup->uring, file->fd, file->backend.disk, file->backend.size_bytes);
        rc = file->length ? 0 : -ENOMEM;
    }
    if (!rc)
        rc = nvt_device_hold_begin(&file->hold, setup, file->fd, &file->backend, error, error_size);
    if (!rc) {
        rc = nvt_disk_open(file->fd, !file->is_direct, &file->backend.watched);
        if (rc)
            nvt_device_hold_end(&file->hold);
    }
    if (rc) {
        if (!*error)
            snprintf(error, error_size, "%s cannot be opened%s: %s%s", setup->path,
                     setup->is_read_only ? "" : " for writing", mover_disk_why(rc),
                     rc == -ENOENT && !file->is_block ? "; 'truncate -s SIZE' makes one" : "");
        if (file->fd >= 0)
            close(file->fd);
        nvt_claim_release(file->backend.claim);
        nvt_length_close(file->length);
        free(file);
        return rc;
    }
    *out = &file->backend;
    return 0;
}

static int backend_open_file(const struct nvt_backend_setup *setup, struct nvt_backend **out,
                             char *error, size_t error_size)
{
    return open_either(setup, &nvt_file, out, error, error_size);
}

static int open_block(const struct nvt_backend_setup *setup, struct nvt_backend **out, char *error,
                      size_t error_size)
{
    return open_either(setup, &nvt_block, out, error, error_size);
}

static void close_either(struct nvt_backend *backend)
{
    struct file *file = (struct file *)backend;
    nvt_device_hold_end(&file->hold);
    close(file->fd);
    nvt_length_close(file->length);
    nvt_disk_close(backend->watched);
    nvt_claim_release(backend->claim);
    free(file);
}

static uint64_t backend_file_size_now(struct nvt_backend *backend)
{
    const struct file *file = (const struct file *)backend;
    uint64_t size;
    if (!file->is_block)
        size = nvt_length_bytes(file->length);
    else if (ioctl(file->fd, BLKGETSIZE64, &size))
        return backend->size_bytes;
    return size - size % backend->block_bytes;
}

const struct nvt_backend_ops nvt_file = {.kind = "file",
                                         .open = backend_open_file,
                                         .close = close_either,
                                         .submit = backend_file_submit_io,
                                         .size_bytes = backend_file_size_now};
const struct nvt_backend_ops nvt_block = {.kind = "block",
                                          .open = open_block,
                                          .close = close_either,
                                          .submit = backend_file_submit_io,
                                          .size_bytes = backend_file_size_now,
                                          .look = nvt_block_look};
