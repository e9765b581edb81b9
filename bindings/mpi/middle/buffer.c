/* SPDX-License-Identifier: BSD-2-Clause */
#include "buffer.h"

#include <stdlib.h>
#include <string.h>

/* MPI's pack and unpack count bytes in an int. */
enum { PIECE_BYTES_MAX = 1 << 30 };

static uint64_t block_count(const struct mpm_buffer *buffer, uint32_t block)
{
    return buffer->counts ? (uint64_t)buffer->counts[block] : buffer->count;
}

uint64_t mpm_block_bytes(const struct mpm_buffer *buffer, uint32_t block)
{
    return block_count(buffer, block) * buffer->is.element_bytes;
}

uint64_t mpm_block_offset(const struct mpm_buffer *buffer, uint32_t block)
{
    if (!buffer->counts)
        return block * buffer->count * buffer->is.element_bytes;
    uint64_t offset = 0;
    for (uint32_t i = 0; i < block; i++)
        offset += mpm_block_bytes(buffer, i);
    return offset;
}

static uint8_t *block_address(const struct mpm_buffer *buffer, uint32_t block)
{
    ptrdiff_t start =
        buffer->starts ? (ptrdiff_t)buffer->starts[block] : (ptrdiff_t)(block * buffer->count);
    return (uint8_t *)buffer->base + start * buffer->is.extent_bytes;
}

/* Whether its bytes lie as the library wants them. */
static bool is_flat(const struct mpm_buffer *buffer)
{
    if (!buffer->is.is_plain)
        return false;
    for (uint32_t i = 1; buffer->starts && i < buffer->blocks; i++) {
        if (buffer->starts[i] != (int64_t)buffer->starts[i - 1] + buffer->counts[i - 1])
            return false;
    }
    return true;
}

/* A block from its place into `flat`, or back. */
static bool move_block(const struct mpm_binding *binding, const struct mpm_buffer *buffer,
                       uint32_t block, uint8_t *flat, bool is_out)
{
    uint8_t *place = block_address(buffer, block);
    uint64_t left = block_count(buffer, block);
    if (buffer->is.is_plain) {
        if (left)
            memcpy(is_out ? place : flat, is_out ? flat : place, left * buffer->is.element_bytes);
        return true;
    }
    if (!buffer->is.element_bytes)
        return true;
    uint64_t piece_max = PIECE_BYTES_MAX / buffer->is.element_bytes;
    if (!piece_max)
        return false;
    while (left) {
        int piece = (int)(left < piece_max ? left : piece_max);
        int bytes = (int)((size_t)piece * buffer->is.element_bytes);
        bool is_done = is_out ? binding->unpack(flat, bytes, place, piece, buffer->type)
                              : binding->pack(place, piece, buffer->type, flat, bytes);
        if (!is_done)
            return false;
        left -= (uint64_t)piece;
        flat += bytes;
        place += piece * buffer->is.extent_bytes;
    }
    return true;
}

static bool take_memory(struct mpm_flat *flat)
{
    flat->is_copy = true;
    flat->bytes = malloc(mpm_block_offset(flat->buffer, flat->buffer->blocks) + 1);
    return flat->bytes != NULL;
}

bool mpm_flat_copy(struct mpm_flat *flat, const struct mpm_binding *binding,
                   const struct mpm_buffer *buffer)
{
    *flat = (struct mpm_flat){.binding = binding, .buffer = buffer};
    if (!take_memory(flat))
        return false;
    uint8_t *at = flat->bytes;
    for (uint32_t i = 0; i < buffer->blocks; i++) {
        if (!move_block(binding, buffer, i, at, false))
            return false;
        at += mpm_block_bytes(buffer, i);
    }
    return true;
}

bool mpm_flat_read(struct mpm_flat *flat, const struct mpm_binding *binding,
                   const struct mpm_buffer *buffer)
{
    *flat = (struct mpm_flat){.binding = binding, .buffer = buffer};
    if (!buffer->blocks)
        return true;
    if (!is_flat(buffer))
        return mpm_flat_copy(flat, binding, buffer);
    flat->bytes = block_address(buffer, 0);
    return true;
}

bool mpm_flat_write(struct mpm_flat *flat, const struct mpm_binding *binding,
                    const struct mpm_buffer *buffer, uint32_t kept)
{
    *flat = (struct mpm_flat){.binding = binding, .buffer = buffer};
    if (!buffer->blocks)
        return true;
    if (is_flat(buffer)) {
        flat->bytes = block_address(buffer, 0);
        return true;
    }
    if (!take_memory(flat))
        return false;
    return kept >= buffer->blocks ||
           move_block(binding, buffer, kept, flat->bytes + mpm_block_offset(buffer, kept), false);
}

bool mpm_flat_store(const struct mpm_flat *flat)
{
    uint8_t *at = flat->bytes;
    for (uint32_t i = 0; flat->is_copy && i < flat->buffer->blocks; i++) {
        if (!move_block(flat->binding, flat->buffer, i, at, true))
            return false;
        at += mpm_block_bytes(flat->buffer, i);
    }
    return true;
}

void mpm_flat_free(struct mpm_flat *flat)
{
    if (flat->is_copy)
        free(flat->bytes);
    *flat = (struct mpm_flat){0};
}
