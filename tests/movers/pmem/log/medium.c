/* SPDX-License-Identifier: BSD-2-Clause */
#include "medium.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_BYTES = 8 };

uint64_t random_below(uint64_t *seed, uint64_t limit)
{
    uint64_t z = *seed += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % limit;
}

void medium_init(struct medium *medium, uint64_t bytes, uint64_t line_bytes, uint64_t *seed)
{
    assert(bytes % line_bytes == 0);
    *medium = (struct medium){.bytes = bytes, .line_bytes = line_bytes, .seed = seed};
    medium->now = calloc(2, bytes);
    assert(medium->now);
    medium->safe = medium->now + bytes;
    for (uint64_t i = 0; i < bytes; i++)
        medium->now[i] = medium->safe[i] = (uint8_t)random_below(seed, 256);
}

void medium_free(struct medium *medium)
{
    free(medium->now);
}

static void save_line(struct medium *medium, uint64_t at)
{
    memcpy(medium->safe + at, medium->now + at, medium->line_bytes);
}

static uint64_t line_of(const struct medium *medium, uint64_t offset)
{
    return offset - offset % medium->line_bytes;
}

void medium_store(struct medium *medium, uint64_t offset, const void *data, uint64_t len)
{
    assert(offset <= medium->bytes && len <= medium->bytes - offset);
    memcpy(medium->now + offset, data, len);
    /* Some line leaves the cache by itself. */
    if (random_below(medium->seed, 4) == 0)
        save_line(medium, line_of(medium, offset + random_below(medium->seed, len)));
}

void medium_store_torn(struct medium *medium, uint64_t offset, const void *data, uint64_t len)
{
    assert(offset % WORD_BYTES == 0 && len % WORD_BYTES == 0 && offset + len <= medium->bytes);
    for (uint64_t i = 0; i < len; i += WORD_BYTES)
        if (random_below(medium->seed, 2))
            memcpy(medium->now + offset + i, (const uint8_t *)data + i, WORD_BYTES);
}

void medium_flush(struct medium *medium, uint64_t offset, uint64_t len)
{
    assert(offset <= medium->bytes && len <= medium->bytes - offset);
    for (uint64_t at = line_of(medium, offset); at < offset + len && !medium->flush_lies;
         at += medium->line_bytes)
        save_line(medium, at);
}

void medium_cut(struct medium *medium)
{
    for (uint64_t at = 0; at < medium->bytes; at += medium->line_bytes)
        if (memcmp(medium->now + at, medium->safe + at, medium->line_bytes) != 0 &&
            random_below(medium->seed, 2))
            save_line(medium, at);
    memcpy(medium->now, medium->safe, medium->bytes);
}
