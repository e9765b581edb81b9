/* SPDX-License-Identifier: BSD-2-Clause */
/* Namespaces in memory: `ram:` keeps what is written, `null:` forgets it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/target/backends.h"
#include "nvme/target/large_pages.h"

enum { BLOCK_BYTES = 4096 };

struct ram {
    struct nvt_backend backend; /* must be first */
    struct nvt_large_pages pages;
};

/* Of `bytes`, which may be more than what all backends have. */
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

void nvt_memory_apply(const struct nvt_backend *backend, const struct nvt_io *io)
{
    uint8_t *at = backend->memory + io->offset;
    switch (io->kind) {
    case NVT_READ:
        if (io->data != at)
            memcpy(io->data, at, io->len_bytes);
        break;
    case NVT_WRITE:
        if (io->data != at)
            memcpy(at, io->data, io->len_bytes);
        break;
    case NVT_WRITE_ZEROES:
    case NVT_DEALLOCATE: /* reads as zeroes from then on, as identify says */
        memset(at, 0, io->len_bytes);
        break;
    case NVT_FLUSH:
    case NVT_VERIFY:
        break;
    }
}

static void ram_submit(struct nvt_backend *backend, struct nvt_io *io)
{
    nvt_memory_apply(backend, io);
    if (io->kind == NVT_WRITE)
        nvt_large_pages_note(&((struct ram *)backend)->pages, io->offset, io->len_bytes);
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
