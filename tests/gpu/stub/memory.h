/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory of the stub's device: each piece a memfd that is mapped. */
#ifndef GPU_STUB_MEMORY_H
#define GPU_STUB_MEMORY_H

#include <stdbool.h>

#include "gpu/common/driver.h"

#define STUB_TOTAL_BYTES ((size_t)4 << 30)

struct stub_piece {
    gpu_pointer pointer;
    size_t len_bytes;
    int fd; /* -1: a mapping of what somebody else has the descriptor of */
};

/* Each gives a code of CUDA's. */
int stub_alloc(gpu_pointer *pointer, size_t bytes);
int stub_free(gpu_pointer pointer);
int stub_know(gpu_pointer pointer, size_t bytes, int fd);
void stub_forget(gpu_pointer pointer);
/* The piece that has this address, or NULL. */
const struct stub_piece *stub_piece_at(gpu_pointer pointer);
/* What was allocated by this process. */
size_t stub_used_bytes(void);
/* A descriptor, or -1. */
int stub_file(size_t bytes);
/* A name by which other processes open the piece. */
int stub_name(struct gpu_handle *handle, const struct stub_piece *piece);
int stub_open(gpu_pointer *pointer, const struct gpu_handle *handle);

#endif
