/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/parts.h"

#include <errno.h>
#include <stdlib.h>

#include "nvme/target/backend/backend.h"

enum { PAGE_BYTES = 4096 };

/* Its pages take no memory until they are read into. */
int nvt_parts_open(struct nvt_parts *parts)
{
    *parts = (struct nvt_parts){0};
    nvt_slices_init(&parts->waiting);
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
    free(parts->memory);
    parts->memory = NULL;
}

/* While any wait, all places are taken: the end of a part finds the next one. Parts that end as
 * soon as they begin call it again. */
static void begin_parts(struct nvt_parts *parts)
{
    if (parts->is_beginning)
        return;
    parts->is_beginning = true;
    while (parts->under_way < NVT_PARTS_MAX && nvt_slices_run(&parts->waiting, 0)) {
    }
    parts->is_beginning = false;
}

void nvt_parts_add(struct nvt_parts *parts, struct nvt_io *io, bool (*begin)(struct nvt_io *io))
{
    nvt_slices_add(&parts->waiting, io, begin);
    begin_parts(parts);
}

uint8_t *nvt_parts_take(struct nvt_parts *parts)
{
    return parts->spare[parts->under_way++];
}

void nvt_parts_give(struct nvt_parts *parts, uint8_t *place, struct nvt_io *io)
{
    parts->spare[--parts->under_way] = place;
    if (io)
        nvt_slices_add(&parts->waiting, io, io->slice.step);
    begin_parts(parts);
}
