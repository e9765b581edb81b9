/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The log of a tier, as it may lie on a disk: superblock, head slot and record heads of any bytes,
 * and of any fields with checks that fit. What is taken for good has only values that a reader may
 * compute with, and is written again byte by byte.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/target/tier/log.h"

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static void take_bytes(const uint8_t **data, size_t *size, void *out, size_t bytes)
{
    const size_t some = bytes < *size ? bytes : *size;
    memset(out, 0, bytes);
    memcpy(out, *data, some);
    *data += some;
    *size -= some;
}

static void check_super(const uint8_t bytes[NVT_TIER_HEAD_BYTES])
{
    struct nvt_tier_super super;
    if (nvt_tier_super_decode(bytes, &super) != NVT_TIER_GOOD)
        return;
    demand(super.copies && super.copies <= NVT_TIER_COPIES_MAX && super.copy < super.copies);
    demand(super.stage_bytes && !(super.stage_bytes & (super.stage_bytes - 1)));
    demand(super.ring_bytes >= 16ull * super.stage_bytes);
    demand(super.ring_bytes % super.stage_bytes == 0);
    demand(super.ring_bytes < UINT64_MAX / 4);
}

static void check_slot(const struct nvt_tier_super *super, const uint8_t *bytes)
{
    struct nvt_tier_slot slot;
    uint8_t again[NVT_TIER_SLOT_BYTES];
    if (nvt_tier_slot_decode(super, bytes, &slot) != NVT_TIER_GOOD)
        return;
    demand(slot.count && slot.head % NVT_TIER_HEAD_BYTES == 0 && slot.head_epoch <= slot.epoch);
    demand(slot.head < UINT64_MAX / 3 && slot.epoch < UINT64_MAX / 2);
    nvt_tier_slot_encode(super, &slot, again);
    struct nvt_tier_slot read;
    demand(nvt_tier_slot_decode(super, again, &read) == NVT_TIER_GOOD);
    demand(read.head == slot.head && read.check == slot.check && read.count == slot.count);
}

static void check_record(const struct nvt_tier_super *super, const uint8_t *bytes)
{
    struct nvt_tier_record record;
    uint8_t again[NVT_TIER_HEAD_BYTES];
    if (!nvt_tier_record_decode(super, bytes, &record))
        return;
    demand(record.payload_bytes <= NVT_TIER_PAYLOAD_MAX);
    demand(record.offset + record.len_bytes >= record.offset);
    demand((record.kind == NVT_TIER_WRITE) == (record.payload_bytes != 0));
    demand(record.position + nvt_tier_record_bytes(record.payload_bytes) > record.position);
    nvt_tier_record_encode(super, &record, again);
    demand(!memcmp(again, bytes, sizeof(again)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t bytes[NVT_TIER_SLOT_BYTES];
    struct nvt_tier_super super;
    struct nvt_tier_slot slot;
    struct nvt_tier_record record;
    take_bytes(&data, &size, bytes, sizeof(bytes));
    check_super(bytes);
    take_bytes(&data, &size, &super, sizeof(super));
    check_slot(&super, bytes);
    check_record(&super, bytes);
    nvt_tier_super_encode(&super, bytes);
    check_super(bytes);
    take_bytes(&data, &size, &record.payload_bytes, sizeof(uint32_t));
    take_bytes(&data, &size, &record.payload_sum, sizeof(uint32_t));
    take_bytes(&data, &size, &record.position, 5 * sizeof(uint64_t));
    record.kind = (enum nvt_tier_kind)(size ? data[0] % 6 : 1);
    nvt_tier_record_encode(&super, &record, bytes);
    check_record(&super, bytes);
    slot = (struct nvt_tier_slot){.count = record.offset,
                                  .epoch = record.epoch,
                                  .head = record.position,
                                  .head_epoch = record.before};
    nvt_tier_slot_encode(&super, &slot, bytes);
    check_slot(&super, bytes);
    return 0;
}
