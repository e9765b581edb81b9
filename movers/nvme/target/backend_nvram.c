/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `nvram:PATH`: a mapping of a file, on a DAX file system of persistent memory itself. A write is
 * safe after a flush: by MAP_SYNC it needs no system call (the processor's caches are written
 * back), else msync() does it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nvme/target/backends.h"

enum { BLOCK_BYTES = 4096 };

struct nvram {
    struct nvt_backend backend;
    size_t mapped_bytes;
};

static uint16_t sync_range(const struct nvt_backend *backend, uint64_t offset, uint64_t len_bytes)
{
    const uint64_t page = BLOCK_BYTES, begin = offset / page * page;
    const int rc = msync(backend->memory + begin, offset - begin + len_bytes, MS_SYNC);
    return rc ? nvt_backend_status(errno, true) : 0;
}

static void backend_nvram_submit_io(struct nvt_backend *backend, struct nvt_io *io)
{
    uint16_t status = 0;
    nvt_memory_apply(backend, io);
    if (io->kind == NVT_FLUSH)
        status = sync_range(backend, 0, backend->size_bytes);
    if (io->is_durable && io->len_bytes)
        status = sync_range(backend, io->offset, io->len_bytes);
    io->done(io, status);
}

static int backend_nvram_map_file(struct nvram *nvram, const struct nvt_backend_setup *setup,
                                  char *error, size_t error_size)
{
    const int fd = open(setup->path, (setup->is_read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat)) {
        const int rc = -errno;
        if (fd >= 0)
            close(fd);
        return rc;
    }
    const uint32_t block = setup->block_bytes ? setup->block_bytes : BLOCK_BYTES;
    const uint64_t size = (uint64_t)stat.st_size / block * block;
    if (!size || !S_ISREG(stat.st_mode)) {
        snprintf(error, error_size, "%s: is no file of at least one block: truncate -s 1G %s",
                 setup->path, setup->path);
        close(fd);
        return -EINVAL;
    }
    const int prot = setup->is_read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    void *memory = mmap(NULL, size, prot, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
    if (memory == MAP_FAILED)
        memory = mmap(NULL, size, prot, MAP_SHARED, fd, 0);
    const int rc = memory == MAP_FAILED ? -errno : 0;
    close(fd);
    if (rc)
        return rc;
    nvram->mapped_bytes = size;
    nvram->backend.memory = memory;
    nvram->backend.size_bytes = size;
    nvram->backend.block_bytes = block;
    return 0;
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
    const int rc = backend_nvram_map_file(nvram, setup, error, error_size);
    if (rc) {
        if (!*error)
            snprintf(error, error_size, "%s cannot be mapped: %s", setup->path, strerror(-rc));
        free(nvram);
        return rc;
    }
    *out = &nvram->backend;
    return 0;
}

static void close_nvram(struct nvt_backend *backend)
{
    struct nvram *nvram = (struct nvram *)backend;
    munmap(backend->memory, nvram->mapped_bytes);
    free(nvram);
}

const struct nvt_backend_ops nvt_nvram = {
    .kind = "nvram", .open = open_nvram, .close = close_nvram, .submit = backend_nvram_submit_io};
