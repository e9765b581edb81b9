/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The index of a snapshot: eight bytes say how long its units are, the rest is the text. What was
 * taken lies within its units, no range upon another, and printed again it is the same.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/core/index.h"

enum { HEAD = 8, UNITS = 6, UNIT_BYTES = SNAP_UNIT_BYTES_MIN };

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static void check_range(const struct snap_index *index, uint32_t number, const uint32_t *blocks)
{
    const struct snap_index_range *range = &index->ranges[number];
    demand(snap_index_find(index, range->name) == number);
    demand(strlen(range->name) <= SW_SNAP_NAME_MAX && range->dims <= SW_SNAP_DIMS_MAX);
    if (range->bytes == 0)
        return;
    uint64_t begin = (uint64_t)range->unit * UNIT_BYTES + range->offset;
    uint64_t last = (begin + range->bytes - 1) / UNIT_BYTES;
    demand(range->unit < UNITS && last < UNITS);
    demand(begin + range->bytes - last * UNIT_BYTES <= (uint64_t)blocks[last] * SNAP_BLOCK_BYTES);
    for (uint32_t i = 0; i < number; i++) {
        const struct snap_index_range *other = &index->ranges[i];
        uint64_t at = (uint64_t)other->unit * UNIT_BYTES + other->offset;
        demand(other->bytes == 0 || at + other->bytes <= begin || begin + range->bytes <= at);
    }
}

static void check_again(const struct snap_index *index, const uint32_t *blocks)
{
    struct snap_index again;
    char *text, *other, why[128];
    size_t bytes, other_bytes;
    demand(snap_index_print(index, &text, &bytes) == 0);
    demand(snap_index_parse(&again, text, bytes, UNIT_BYTES, UNITS, blocks, why, sizeof(why)) == 0);
    demand(snap_index_print(&again, &other, &other_bytes) == 0);
    demand(bytes == other_bytes && memcmp(text, other, bytes) == 0);
    snap_index_free(&again);
    free(text);
    free(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct snap_index index;
    uint32_t blocks[UNITS];
    char why[128] = "";
    if (size < HEAD)
        return 0;
    for (uint32_t i = 0; i < UNITS; i++)
        blocks[i] = data[i] + 1u;
    if (snap_index_parse(&index, (const char *)data + HEAD, size - HEAD, UNIT_BYTES, UNITS, blocks,
                         why, sizeof(why)) != 0) {
        demand(why[0] != 0);
        return 0;
    }
    for (uint32_t i = 0; i < index.ranges_count; i++)
        check_range(&index, i, blocks);
    check_again(&index, blocks);
    snap_index_free(&index);
    return 0;
}
