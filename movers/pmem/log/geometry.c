/* SPDX-License-Identifier: BSD-2-Clause */
/* What a log's ring may be, and what copies say of it together. */
#include <string.h>

#include "common/base/minmax.h"
#include "pmem/log/layout.h"

enum {
    STAGE_BYTES_MAX = 1 << 20, /* unless two records are longer */
    STAGE_RECORDS_MIN = 2,
    STAGE_RECORDS_MAX = 8, /* how many a stage of long records may have */
    RING_STEP_BYTES = 1 << 16,
};

bool pml_geometry_is_valid(const struct pml_geometry *geometry)
{
    return geometry->copies >= 1 && geometry->copies <= PML_COPIES_MAX &&
           geometry->quorum <= geometry->copies && geometry->quorum * 2 > geometry->copies &&
           geometry->ring_bytes % PML_LINE_BYTES == 0 &&
           geometry->ring_bytes >= PML_RING_BYTES_MIN &&
           geometry->ring_bytes <= PML_NUMBER_MAX - PML_RING_OFFSET &&
           geometry->payload_max <= PML_PAYLOAD_MAX &&
           geometry->ring_bytes / 4 >= pml_record_bytes(geometry->payload_max);
}

bool pml_geometry_is_same(const struct pml_geometry *a, const struct pml_geometry *b)
{
    return !memcmp(a->id, b->id, PML_ID_BYTES) && a->ring_bytes == b->ring_bytes &&
           a->payload_max == b->payload_max && a->copies == b->copies && a->quorum == b->quorum;
}

/* The largest up to 1 MiB; where that does not hold two records, the smallest that does. */
uint64_t pml_stage_bytes_of(const struct pml_geometry *geometry)
{
    const uint64_t ring = geometry->ring_bytes, record = pml_record_bytes(geometry->payload_max);
    const uint64_t least = STAGE_RECORDS_MIN * record;
    uint64_t stage = mover_min_u64(ring, STAGE_BYTES_MAX);
    for (; stage >= least; stage -= PML_LINE_BYTES)
        if (ring % stage == 0)
            return stage;
    const uint64_t most = mover_min_u64(ring, STAGE_RECORDS_MAX * record);
    for (stage = least; stage <= most; stage += PML_LINE_BYTES)
        if (ring % stage == 0)
            return stage;
    return 0;
}

uint64_t pml_ring_bytes_above(const struct pml_geometry *geometry)
{
    uint64_t step = RING_STEP_BYTES;
    while (step < STAGE_RECORDS_MIN * pml_record_bytes(geometry->payload_max))
        step *= 2;
    return (geometry->ring_bytes + step - 1) / step * step;
}

void pml_census_take(struct pml_census *census, unsigned copy, const uint8_t *control,
                     uint64_t region_bytes)
{
    struct pml_geometry *geometry = &census->geometries[copy];
    uint16_t which = 0;
    enum pml_verdict verdict = pml_superblock_parse(control, geometry, &which);
    if (verdict == PML_FINE && which != copy)
        verdict = PML_OTHER_COPY;
    if (verdict == PML_FINE &&
        (region_bytes < PML_RING_OFFSET || region_bytes - PML_RING_OFFSET < geometry->ring_bytes ||
         geometry->copies != census->copies || !pml_stage_bytes_of(geometry)))
        verdict = PML_DAMAGED;
    census->verdicts[copy] = verdict;
    census->read |= 1u << copy;
}

static bool is_believable(const struct pml_census *census, unsigned copy)
{
    return census->read >> copy & 1 && census->verdicts[copy] == PML_FINE;
}

static unsigned count_same(const struct pml_census *census, unsigned copy)
{
    unsigned count = 0;
    for (unsigned i = 0; i < census->copies; i++)
        count += is_believable(census, i) &&
                 pml_geometry_is_same(&census->geometries[i], &census->geometries[copy]);
    return count;
}

enum pml_verdict pml_census_end(const struct pml_census *census, struct pml_geometry *geometry)
{
    const unsigned quorum = census->copies / 2 + 1u;
    const unsigned unread = census->copies - (unsigned)__builtin_popcount(census->read);
    bool is_open = unread >= quorum;
    for (unsigned i = 0; i < census->copies; i++) {
        if (!is_believable(census, i))
            continue;
        const unsigned same = count_same(census, i), wants = census->geometries[i].quorum;
        if (same >= wants) {
            *geometry = census->geometries[i];
            return PML_FINE;
        }
        is_open |= same + unread >= wants;
    }
    return is_open ? PML_UNDECIDED : PML_NO_LOG;
}
