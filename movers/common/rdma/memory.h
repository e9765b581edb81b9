/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that RDMA devices read and write: a program's own, that of a file, of a device's driver or
 * of a GPU. It may be registered with several devices. Each registration is the caller's, who ends
 * it with ibv_dereg_mr() before the memory is closed.
 */
#ifndef SW_MOVERS_MEMORY_H
#define SW_MOVERS_MEMORY_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mover_memory_kind { MOVER_HOST, MOVER_FILE, MOVER_DMABUF };

struct mover_memory {
    enum mover_memory_kind kind;
    void *data;       /* NULL: the processor does not see it */
    uint64_t address; /* as requests name its first byte */
    uint64_t bytes;
    int fd;             /* ours: of a DMA buffer, or of a file that is only read; -1: none */
    uint64_t fd_offset; /* of its first byte, in that */
    bool is_writable;
};

/* Zeros, on pages of their own: what is registered shares none with the heap. NULL: no memory. To
 * be freed by free(), but not in a child of fork(), which may lack pages that are registered. */
void *mover_pages(size_t bytes);

/* The caller's, who keeps it. */
struct mover_memory mover_memory_host(void *data, uint64_t bytes);
/* Maps a part of a file, up to its end if `bytes` is 0. 0, or a negative errno; -EINVAL: the part
 * does not lie within the file, or not at the start of a page. */
int mover_memory_file(struct mover_memory *memory, int fd, uint64_t offset, uint64_t bytes,
                      bool is_writable);
/* A part of a DMA buffer. 0, or a negative errno. */
int mover_memory_dmabuf(struct mover_memory *memory, int fd, uint64_t offset, uint64_t bytes);
/* Memory of a GPU: CUDA's driver hands out a DMA buffer for it. 0, or a negative errno; -ENODEV:
 * this host has no such driver; -EOPNOTSUPP: it hands out none for that address. */
int mover_memory_cuda(struct mover_memory *memory, uint64_t device_pointer, uint64_t bytes);
/* What was mapped and opened for it. */
void mover_memory_close(struct mover_memory *memory);

/* All of it, for this side: to write where it can be written, and host memory that cannot is noted
 * as such. `wishes` (enum ibv_access_flags) are left out where the device refuses them. NULL and
 * errno: the device has no room, or does not take such memory. */
struct ibv_mr *mover_memory_register(struct mover_memory *memory, struct ibv_pd *pd, int wishes);
/* A part of it, with these rights. */
struct ibv_mr *mover_memory_register_part(const struct mover_memory *memory, struct ibv_pd *pd,
                                          uint64_t offset, uint64_t bytes, int access);

#endif
