/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Images of Ceph, by librbd. Its threads end operations, and post them to the thread that has begun
 * them. librbd's cache is off, so a write that is answered is on the disks of the cluster.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include <nvme/types.h>

#include "common/base/minmax.h"
#include "common/serve/log.h"
#include "nvme/target/backend/backends.h"
#include "nvme/target/backend/rbd_image.h"
#include "nvme/target/backend/uring.h"
#include "nvme/wire/fabrics.h"

enum {
    BLOCK_BYTES = 4096,
    SECTOR_BYTES = 512,
    ZEROED_BYTES = 32 << 20, /* of one request, so that others have turns */
    FREED_BYTES = 256 << 20,
    MAJOR = 1 << 20, /* the kernel has no such device number */
};

struct rbd_backend {
    struct nvt_backend backend;
    struct nvt_rbd_image *image;
};

/* A request to librbd. */
struct rbd_op {
    struct mover_ring_op op; /* must be first */
    struct nvt_io *io;
    struct rbd_backend *rbd;
    uint8_t *place;      /* of parts.h, for VERIFY */
    uint64_t part_bytes; /* of VERIFY, WRITE_ZEROES and DEALLOCATE */
};

/* ---- the end of an operation ---- */

static bool rbd_begin_part(struct nvt_io *io);
static void rbd_send_piece(struct rbd_backend *rbd, struct nvt_io *io);

/* Hosts that have several paths try another one. */
static uint16_t lost_status(void)
{
    return NVF_PATH(NVME_SC_ANA_INTERNAL_PATH_ERROR);
}

/* Somebody has broken the lock, and the cluster has shut this client out. */
static void note_lost(struct nvt_rbd_image *image, int error)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&image->lost, &none, error))
        mover_log(
            MOVER_LOG_ERROR,
            "rbd:%s is lost: another client has taken its lock, and the cluster takes "
            "nothing from this one any more. Each command to it fails from now on: where that "
            "should not be, remove the namespace and add it with ,fence",
            image->name);
}

/* librbd says EROFS where it has no lock any more. */
static bool is_loss(const struct nvt_rbd_image *image, int error)
{
    return error == ESHUTDOWN || (error == EROFS && image->has_lock);
}

static uint16_t status_of_rbd(struct rbd_backend *rbd, const struct nvt_io *io, int result)
{
    const bool is_read = io->kind == NVT_READ || io->kind == NVT_VERIFY;
    if (result >= 0)
        return 0;
    if (is_loss(rbd->image, -result)) {
        note_lost(rbd->image, -result);
        return lost_status();
    }
    return nvt_backend_status(-result == EBUSY ? EIO : -result, !is_read);
}

static void rbd_end_part(struct rbd_op *op, uint16_t status)
{
    struct nvt_io *io = op->io;
    struct rbd_backend *rbd = op->rbd;
    uint8_t *place = op->place;
    io->moved += op->part_bytes;
    free(op);
    nvt_parts_give(&io->uring->parts, place);
    if (status || io->moved == io->len_bytes)
        return io->done(io, status);
    nvt_parts_add(&io->uring->parts, rbd->backend.disk, io, rbd_begin_part);
}

/* In the thread that has begun it. */
static void backend_rbd_complete_op(struct mover_ring_op *base, int result)
{
    struct rbd_op *op = (struct rbd_op *)base;
    struct nvt_io *io = op->io;
    struct rbd_backend *rbd = op->rbd;
    const uint64_t wanted = op->place ? op->part_bytes : io->len_bytes;
    uint16_t status = status_of_rbd(rbd, io, result);
    if ((io->kind == NVT_READ || io->kind == NVT_VERIFY) && !status && (uint64_t)result != wanted)
        status = nvt_backend_status(EIO, false); /* the image has become shorter */
    if (op->place)
        return rbd_end_part(op, status);
    const uint64_t part_bytes = op->part_bytes;
    free(op);
    io->moved += part_bytes;
    if (status || !part_bytes || io->moved == io->len_bytes)
        return io->done(io, status);
    status = io->given_up ? io->given_up(io) : 0;
    if (status)
        return io->done(io, status);
    rbd_send_piece(rbd, io);
}

/* In a thread of librbd. */
static void rbd_note_end(rbd_completion_t completion, void *arg)
{
    struct rbd_op *op = arg;
    const struct nvt_rbd_api *api = op->rbd->image->api;
    const ssize_t result = api->rbd_aio_get_return_value(completion);
    api->rbd_aio_release(completion);
    nvt_uring_post(op->io->uring, &op->op, (int)result);
}

/* ---- its beginning ---- */

static int call_librbd(struct rbd_op *op, rbd_completion_t completion)
{
    const struct nvt_rbd_image *image = op->rbd->image;
    const struct nvt_rbd_api *api = image->api;
    const struct nvt_io *io = op->io;
    const uint64_t at = io->offset + io->moved;
    switch (io->kind) {
    case NVT_READ:
        return api->rbd_aio_read(image->image, at, io->len_bytes, (char *)io->data, completion);
    case NVT_WRITE:
        return api->rbd_aio_write(image->image, at, io->len_bytes, (const char *)io->data,
                                  completion);
    case NVT_VERIFY:
        return api->rbd_aio_read(image->image, at, op->part_bytes, (char *)op->place, completion);
    case NVT_WRITE_ZEROES:
        return api->rbd_aio_write_zeroes(
            image->image, at, op->part_bytes, completion,
            io->deallocates ? 0 : RBD_WRITE_ZEROES_FLAG_THICK_PROVISION, 0);
    case NVT_DEALLOCATE:
        return api->rbd_aio_discard(image->image, at, op->part_bytes, completion);
    case NVT_FLUSH:
        break;
    }
    return api->rbd_aio_flush(image->image, completion);
}

/* False: librbd has not taken it, and `status` says why. */
static bool rbd_send_op(struct rbd_op *op, uint16_t *status)
{
    const struct nvt_rbd_api *api = op->rbd->image->api;
    struct nvt_uring *uring = op->io->uring;
    rbd_completion_t completion;
    op->op.complete = backend_rbd_complete_op;
    *status = NVME_SC_INTERNAL;
    if (api->rbd_aio_create_completion(op, rbd_note_end, &completion))
        return false;
    nvt_uring_await(uring);
    const int rc = call_librbd(op, completion);
    if (!rc)
        return true;
    uring->awaited--;
    api->rbd_aio_release(completion);
    *status = status_of_rbd(op->rbd, op->io, rc);
    return false;
}

static struct rbd_op *make_rbd_op(struct rbd_backend *rbd, struct nvt_io *io, uint64_t part_bytes)
{
    struct rbd_op *op = malloc(sizeof(*op));
    if (op)
        *op = (struct rbd_op){.io = io, .rbd = rbd, .part_bytes = part_bytes};
    return op;
}

static bool rbd_begin_part(struct nvt_io *io)
{
    struct rbd_backend *rbd = io->owner;
    uint16_t status;
    struct rbd_op *op =
        make_rbd_op(rbd, io, mover_min_u64(NVT_PART_BYTES, io->len_bytes - io->moved));
    if (!op) {
        io->done(io, NVME_SC_INTERNAL);
        return true;
    }
    op->place = nvt_parts_take(&io->uring->parts);
    if (!rbd_send_op(op, &status))
        rbd_end_part(op, status);
    return true;
}

/* READ, WRITE and FLUSH are one piece, whose part has no bytes. */
static uint64_t rbd_piece_bytes(const struct nvt_io *io)
{
    if (io->kind != NVT_WRITE_ZEROES && io->kind != NVT_DEALLOCATE)
        return 0;
    const uint64_t most = io->kind == NVT_WRITE_ZEROES ? ZEROED_BYTES : FREED_BYTES;
    return mover_min_u64(io->len_bytes - io->moved, most - (io->offset + io->moved) % most);
}

static void rbd_send_piece(struct rbd_backend *rbd, struct nvt_io *io)
{
    uint16_t status;
    struct rbd_op *op = make_rbd_op(rbd, io, rbd_piece_bytes(io));
    if (!op)
        return io->done(io, NVME_SC_INTERNAL);
    if (rbd_send_op(op, &status))
        return;
    free(op);
    io->done(io, status);
}

static void backend_rbd_submit_io(struct nvt_backend *backend, struct nvt_io *io)
{
    struct rbd_backend *rbd = (struct rbd_backend *)backend;
    io->owner = rbd;
    io->moved = 0;
    if (atomic_load_explicit(&rbd->image->lost, memory_order_relaxed))
        return io->done(io, lost_status());
    if (io->kind == NVT_VERIFY)
        return nvt_parts_add(&io->uring->parts, backend->disk, io, rbd_begin_part);
    rbd_send_piece(rbd, io);
}

/* ---- opening ---- */

static int choose_rbd_block(struct nvt_backend *backend, uint32_t wanted, const char *path,
                            char *error, size_t error_size)
{
    const uint32_t otherwise = backend->size_bytes % BLOCK_BYTES ? SECTOR_BYTES : BLOCK_BYTES;
    backend->block_bytes = wanted ? wanted : otherwise;
    backend->size_bytes -= backend->size_bytes % backend->block_bytes;
    if (backend->size_bytes)
        return 0;
    snprintf(error, error_size,
             "rbd:%s: is shorter than a block of %u bytes: 'rbd resize --size 10G %s' makes it "
             "longer",
             path, backend->block_bytes, path);
    return -EINVAL;
}

static int open_rbd(const struct nvt_backend_setup *setup, struct nvt_backend **out, char *error,
                    size_t error_size)
{
    static unsigned number;
    struct rbd_backend *rbd = calloc(1, sizeof(*rbd));
    if (!rbd)
        return -ENOMEM;
    int rc = nvt_rbd_image_open(setup, &rbd->image, error, error_size);
    if (rc) {
        free(rbd);
        return rc;
    }
    rbd->backend = (struct nvt_backend){.ops = &nvt_rbd,
                                        .size_bytes = rbd->image->size_bytes,
                                        .is_read_only = rbd->image->is_read_only,
                                        .can_deallocate = true,
                                        .disk = makedev(MAJOR, number++),
                                        .lost = &rbd->image->lost};
    memcpy(rbd->backend.medium, rbd->image->medium, sizeof(rbd->backend.medium));
    rc = choose_rbd_block(&rbd->backend, setup->block_bytes, setup->path, error, error_size);
    if (!rc) {
        *out = &rbd->backend;
        return 0;
    }
    nvt_rbd_image_close(rbd->image);
    free(rbd);
    return rc;
}

static void close_rbd(struct nvt_backend *backend)
{
    struct rbd_backend *rbd = (struct rbd_backend *)backend;
    nvt_rbd_image_close(rbd->image);
    free(rbd);
}

static int look_at_rbd(const struct nvt_backend_setup *setup, struct nvt_backend_look *out,
                       char *error, size_t error_size)
{
    struct nvt_backend_setup reading = *setup;
    struct nvt_backend *backend;
    reading.is_read_only = true;
    const int rc = open_rbd(&reading, &backend, error, error_size);
    if (rc)
        return rc;
    *out = (struct nvt_backend_look){.size_bytes = backend->size_bytes,
                                     .block_bytes = backend->block_bytes};
    memcpy(out->medium, backend->medium, sizeof(out->medium));
    close_rbd(backend);
    return 0;
}

static uint64_t backend_rbd_size_now(struct nvt_backend *backend)
{
    const struct rbd_backend *rbd = (const struct rbd_backend *)backend;
    const uint64_t size = atomic_load_explicit(&rbd->image->size_bytes, memory_order_relaxed);
    return size - size % backend->block_bytes;
}

const struct nvt_backend_ops nvt_rbd = {.kind = "rbd",
                                        .open = open_rbd,
                                        .close = close_rbd,
                                        .submit = backend_rbd_submit_io,
                                        .size_bytes = backend_rbd_size_now,
                                        .look = look_at_rbd,
                                        .fence = nvt_rbd_fence,
                                        .settle = nvt_rbd_settle};
