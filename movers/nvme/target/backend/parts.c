/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/parts.h"

#include <errno.h>
#include <stdlib.h>

#include <nvme/types.h>

#include "nvme/target/backend/backend.h"

enum { PAGE_BYTES = 4096 };

/* Its pages take no memory until they are read into. */
int nvt_parts_open(struct nvt_parts *parts)
{
    *parts = (struct nvt_parts){0};
    nvt_lines_open(&parts->lines, NVT_PARTS_MAX, NVT_PARTS_OF_ONE);
    if (posix_memalign((void **)&parts->memory, PAGE_BYTES,
                       (size_t)NVT_PARTS_MAX * NVT_PART_BYTES)) {
        parts->memory = NULL;
        return -ENOMEM;
    }
    for (int i = 0; i < NVT_PARTS_MAX; i++)
        parts->spare[i] = parts->memory + i * (size_t)NVT_PART_BYTES;
    return 0;
}

void nvt_parts_close(struct nvt_parts *parts)
{
    nvt_lines_close(&parts->lines);
    free(parts->memory);
    parts->memory = NULL;
}

void nvt_parts_add(struct nvt_parts *parts, dev_t disk, struct nvt_io *io,
                   bool (*begin)(struct nvt_io *io))
{
    if (!nvt_lines_add(&parts->lines, disk, io, begin, false))
        io->done(io, NVME_SC_INTERNAL);
}

static struct nvt_line **taker_of(struct nvt_parts *parts, const uint8_t *place)
{
    return &parts->taken_by[(size_t)(place - parts->memory) / NVT_PART_BYTES];
}

uint8_t *nvt_parts_take(struct nvt_parts *parts)
{
    uint8_t *place = parts->spare[parts->under_way++];
    *taker_of(parts, place) = nvt_lines_take(&parts->lines);
    return place;
}

void nvt_parts_give(struct nvt_parts *parts, uint8_t *place)
{
    parts->spare[--parts->under_way] = place;
    nvt_lines_give(&parts->lines, *taker_of(parts, place));
}
