/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A buffer as MPI has it: blocks of elements, which may have gaps between and within them. The
 * library moves bytes that lie one behind the other, so what has gaps goes through a copy.
 */
#ifndef SW_BINDINGS_MPI_BUFFER_H
#define SW_BINDINGS_MPI_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "binding.h"

struct mpm_buffer {
    void *base;
    const void *type; /* for `pack` and `unpack` */
    struct mpm_description is;
    uint32_t blocks; /* 0: this rank has none */
    uint64_t count;  /* of elements of each block */
    /* Calls with a v say it of each block, and where it begins, in elements. NULL: `count` each,
     * one behind the other. */
    const int *counts, *starts;
};

/* While an operation reads or writes it. */
struct mpm_flat {
    const struct mpm_binding *binding;
    const struct mpm_buffer *buffer;
    uint8_t *bytes; /* of the first block; the others follow */
    bool is_copy;
};

uint64_t mpm_block_bytes(const struct mpm_buffer *buffer, uint32_t block);
/* Where a block is among the bytes of all. */
uint64_t mpm_block_offset(const struct mpm_buffer *buffer, uint32_t block);

/* For reading. False: no memory, or the MPI refuses the type. */
bool mpm_flat_read(struct mpm_flat *flat, const struct mpm_binding *binding,
                   const struct mpm_buffer *buffer);
/* The same, but a copy in any case. */
bool mpm_flat_copy(struct mpm_flat *flat, const struct mpm_binding *binding,
                   const struct mpm_buffer *buffer);
/* For writing; `kept` is a block that is there already, or none (>= blocks). */
bool mpm_flat_write(struct mpm_flat *flat, const struct mpm_binding *binding,
                    const struct mpm_buffer *buffer, uint32_t kept);
/* What was written goes to its place. */
bool mpm_flat_store(const struct mpm_flat *flat);
void mpm_flat_free(struct mpm_flat *flat);

#endif
