/* SPDX-License-Identifier: BSD-2-Clause */
/* Namespaces in memory: `ram:` keeps what is written, `null:` forgets it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pool/pool.h"
#include "nvme/target/backend/backends.h"
#include "nvme/target/backend/guard.h"
#include "nvme/target/backend/large_pages.h"
#include "nvme/target/backend/slices.h"
#include "nvme/target/backend/zeroing.h"

enum { BLOCK_BYTES = 4096 };

struct ram {
    struct nvt_backend backend; /* must be first */
    struct nvt_large_pages pages;
};

/* The backend has `bytes`, which may be more than what all backends have. */
static int backend_make_memory(const struct nvt_backend_setup *setup,
                               const struct nvt_backend_ops *ops, size_t bytes,
                               struct nvt_backend **out, char *error, size_t error_size)
{
    const uint32_t block = setup->block_bytes ? setup->block_bytes : BLOCK_BYTES;
    if (setup->size_bytes < block) {
        snprintf(error, error_size, "%s: needs a size, e.g. %s:64M", ops->kind, ops->kind);
        return -EINVAL;
    }
    struct nvt_backend *backend = calloc(1, bytes);
    if (!backend)
        return -ENOMEM;
    *backend = (struct nvt_backend){.ops = ops,
                                    .size_bytes = setup->size_bytes / block * block,
                                    .block_bytes = block,
                                    .is_read_only = setup->is_read_only,
                                    .can_deallocate = true,
                                    .frees_to_zeroes = true};
    *out = backend;
    return 0;
}

static int ram_open(const struct nvt_backend_setup *setup, struct nvt_backend **out, char *error,
                    size_t error_size)
{
    int rc = backend_make_memory(setup, &nvt_ram, sizeof(struct ram), out, error, error_size);
    if (rc)
        return rc;
    struct ram *ram = (struct ram *)*out;
    rc = nvt_guard_open();
    if (!rc)
        rc = nvt_large_pages_map(&ram->pages, (*out)->size_bytes);
    if (rc) {
        snprintf(error, error_size, "ram: %llu MiB of memory cannot be had: %s",
                 (unsigned long long)((*out)->size_bytes >> 20), strerror(-rc));
        free(ram);
        return rc;
    }
    (*out)->memory = ram->pages.base;
    return 0;
}

static void ram_close(struct nvt_backend *backend)
{
    struct ram *ram = (struct ram *)backend;
    nvt_large_pages_unmap(&ram->pages);
    free(ram);
}

bool nvt_memory_move(const struct nvt_backend *backend, const struct nvt_io *io)
{
    uint8_t *at = backend->memory + io->offset;
    if (io->data == at)
        return true;
    return io->kind == NVT_READ ? nvt_guard_read(io->data, at, io->len_bytes)
                                : nvt_guard_write(at, io->data, io->len_bytes);
}

/* A NIC goes on using the pages that it has pinned, so none of these is given back. */
static int64_t ram_zero_part(struct ram *ram, const struct nvt_io *io, uint64_t at, uint64_t end)
{
    struct nvt_zeroing zeroing = {.base = ram->pages.base, .fd = ram->pages.fd};
    zeroing.gives_back = !io->memory || mover_region_enter(io->memory);
    const int64_t next = nvt_zeroing_step(&zeroing, at, end);
    if (zeroing.gives_back && io->memory)
        mover_region_leave(io->memory);
    if (next > 0 && zeroing.gives_back)
        nvt_large_pages_forget(&ram->pages, at, (uint64_t)next - at);
    return next;
}

static bool ram_zero_step(struct nvt_io *io)
{
    const uint64_t end = io->offset + io->len_bytes;
    const int64_t next = ram_zero_part(io->owner, io, io->offset + io->moved, end);
    if (next >= 0 && (uint64_t)next < end) {
        io->moved = (uint64_t)next - io->offset;
        return false;
    }
    io->done(io, next < 0 ? nvt_backend_status(ENOSPC, true) : 0);
    return true;
}

static void ram_submit(struct nvt_backend *backend, struct nvt_io *io)
{
    struct ram *ram = (struct ram *)backend;
    switch (io->kind) {
    case NVT_READ:
    case NVT_WRITE:
        if (!nvt_memory_move(backend, io))
            return io->done(io, nvt_backend_status(ENOSPC, true));
        if (io->kind == NVT_WRITE)
            nvt_large_pages_note(&ram->pages, io->offset, io->len_bytes);
        break;
    case NVT_WRITE_ZEROES:
    case NVT_DEALLOCATE: /* reads as zeroes from then on, as identify says */
        io->owner = ram;
        io->moved = 0;
        return nvt_slices_add(io->slices, io, ram_zero_step);
    case NVT_FLUSH:
    case NVT_VERIFY:
        break;
    }
    io->done(io, 0);
}

static int null_open(const struct nvt_backend_setup *setup, struct nvt_backend **out, char *error,
                     size_t error_size)
{
    return backend_make_memory(setup, &nvt_null, sizeof(struct nvt_backend), out, error,
                               error_size);
}

static void null_close(struct nvt_backend *backend)
{
    free(backend);
}

/* A read gives zeroes: the buffer may hold what another host has written. */
static void null_submit(struct nvt_backend *backend, struct nvt_io *io)
{
    (void)backend;
    if (io->kind == NVT_READ)
        memset(io->data, 0, io->len_bytes);
    io->done(io, 0);
}

const struct nvt_backend_ops nvt_ram = {
    .kind = "ram", .open = ram_open, .close = ram_close, .submit = ram_submit};
const struct nvt_backend_ops nvt_null = {
    .kind = "null", .open = null_open, .close = null_close, .submit = null_submit};
