/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/tier/log.h"

#include <isa-l/crc.h>
#include <isa-l/crc64.h>
#include <string.h>

#include "common/base/bytes.h"

enum { VERSION = 1, RECORD_MAGIC = 0x52545753 /* "SWTR" */ };

#define POSITION_MAX ((uint64_t)INT64_MAX)

static const uint8_t super_magic[8] = "SWTIERL";

static uint64_t check_of(const struct nvt_tier_super *super, const uint8_t *data, uint32_t bytes)
{
    const uint64_t seed = super ? crc64_ecma_refl(0, super->identity, sizeof(super->identity)) : 0;
    return crc64_ecma_refl(seed, data, bytes);
}

static bool has_zeroes_alone(const uint8_t *data, uint32_t bytes)
{
    uint8_t any = 0;
    for (uint32_t i = 0; i < bytes; i++)
        any |= data[i];
    return !any;
}

uint32_t nvt_tier_sum(uint32_t sum, const uint8_t *data, uint32_t bytes)
{
    return ~crc32_iscsi((unsigned char *)(uintptr_t)data, (int)bytes, ~sum);
}

bool nvt_tier_divide(uint64_t medium_bytes, uint64_t *ring_bytes, uint32_t *stage_bytes)
{
    if (medium_bytes < NVT_TIER_RING + 16ull * NVT_TIER_STAGE_MIN)
        return false;
    const uint64_t room = medium_bytes - NVT_TIER_RING;
    uint32_t stage = NVT_TIER_STAGE_MIN;
    while (stage < NVT_TIER_STAGE_MAX && 32ull * stage <= room)
        stage *= 2;
    *stage_bytes = stage;
    *ring_bytes = room / stage * stage;
    return true;
}

void nvt_tier_super_encode(const struct nvt_tier_super *super, uint8_t out[NVT_TIER_HEAD_BYTES])
{
    memset(out, 0, NVT_TIER_HEAD_BYTES);
    memcpy(out, super_magic, sizeof(super_magic));
    put_le32(out + 8, VERSION);
    put_le16(out + 12, super->copies);
    put_le16(out + 14, super->copy);
    memcpy(out + 16, super->identity, sizeof(super->identity));
    put_le64(out + 32, super->ring_bytes);
    put_le32(out + 40, super->stage_bytes);
    put_le64(out + 56, check_of(NULL, out, 56));
}

enum nvt_tier_verdict nvt_tier_super_decode(const uint8_t in[NVT_TIER_HEAD_BYTES],
                                            struct nvt_tier_super *super)
{
    if (has_zeroes_alone(in, NVT_TIER_HEAD_BYTES))
        return NVT_TIER_BLANK;
    if (memcmp(in, super_magic, sizeof(super_magic)) != 0)
        return NVT_TIER_FOREIGN;
    if (get_le32(in + 8) != VERSION)
        return NVT_TIER_UNKNOWN;
    struct nvt_tier_super read = {.copies = get_le16(in + 12),
                                  .copy = get_le16(in + 14),
                                  .ring_bytes = get_le64(in + 32),
                                  .stage_bytes = get_le32(in + 40)};
    memcpy(read.identity, in + 16, sizeof(read.identity));
    const uint32_t stage = read.stage_bytes;
    if (get_le64(in + 56) != check_of(NULL, in, 56) || !read.copies ||
        read.copies > NVT_TIER_COPIES_MAX || read.copy >= read.copies ||
        stage < NVT_TIER_STAGE_MIN || stage > NVT_TIER_STAGE_MAX || (stage & (stage - 1)) ||
        read.ring_bytes % stage || read.ring_bytes < 16ull * stage ||
        read.ring_bytes > POSITION_MAX / 4)
        return NVT_TIER_DAMAGED;
    *super = read;
    return NVT_TIER_GOOD;
}

void nvt_tier_slot_encode(const struct nvt_tier_super *super, const struct nvt_tier_slot *slot,
                          uint8_t out[NVT_TIER_SLOT_BYTES])
{
    memset(out, 0, NVT_TIER_SLOT_BYTES);
    put_le64(out, slot->count);
    put_le64(out + 8, slot->epoch);
    put_le64(out + 16, slot->head);
    put_le64(out + 24, slot->check);
    memcpy(out + 32, slot->stamp.identity, sizeof(slot->stamp.identity));
    put_le64(out + 48, slot->stamp.size_bytes);
    put_le64(out + 56, (uint64_t)slot->stamp.mtime_ns);
    put_le32(out + 64, slot->is_destaging);
    put_le64(out + 72, slot->head_epoch);
    put_le64(out + 120, check_of(super, out, 120));
}

enum nvt_tier_verdict nvt_tier_slot_decode(const struct nvt_tier_super *super,
                                           const uint8_t in[NVT_TIER_SLOT_BYTES],
                                           struct nvt_tier_slot *slot)
{
    if (has_zeroes_alone(in, NVT_TIER_SLOT_BYTES))
        return NVT_TIER_BLANK;
    struct nvt_tier_slot read = {
        .count = get_le64(in),
        .epoch = get_le64(in + 8),
        .head = get_le64(in + 16),
        .check = get_le64(in + 24),
        .head_epoch = get_le64(in + 72),
        .stamp = {.size_bytes = get_le64(in + 48), .mtime_ns = (int64_t)get_le64(in + 56)},
        .is_destaging = get_le32(in + 64) & 1};
    memcpy(read.stamp.identity, in + 32, sizeof(read.stamp.identity));
    if (get_le64(in + 120) != check_of(super, in, 120) || !read.count ||
        read.count > POSITION_MAX || read.epoch >= POSITION_MAX || read.head_epoch > read.epoch ||
        read.head > POSITION_MAX / 2 || read.head % NVT_TIER_HEAD_BYTES)
        return NVT_TIER_DAMAGED;
    *slot = read;
    return NVT_TIER_GOOD;
}

void nvt_tier_record_encode(const struct nvt_tier_super *super, struct nvt_tier_record *record,
                            uint8_t out[NVT_TIER_HEAD_BYTES])
{
    put_le32(out, RECORD_MAGIC);
    put_le32(out + 4, (uint32_t)record->kind);
    put_le32(out + 8, record->payload_bytes);
    put_le32(out + 12, record->payload_sum);
    put_le64(out + 16, record->position);
    put_le64(out + 24, record->epoch);
    put_le64(out + 32, record->offset);
    put_le64(out + 40, record->len_bytes);
    put_le64(out + 48, record->before);
    record->check = check_of(super, out, 56);
    put_le64(out + 56, record->check);
}

static bool is_record_sound(const struct nvt_tier_record *record, uint32_t kind)
{
    if (kind < NVT_TIER_WRITE || kind > NVT_TIER_BEGIN || record->epoch >= POSITION_MAX ||
        record->position > POSITION_MAX / 2 || record->position % NVT_TIER_HEAD_BYTES ||
        record->offset > POSITION_MAX || record->len_bytes > POSITION_MAX - record->offset)
        return false;
    if (kind == NVT_TIER_WRITE)
        return record->payload_bytes && record->payload_bytes <= NVT_TIER_PAYLOAD_MAX &&
               record->payload_bytes == record->len_bytes;
    return !record->payload_bytes && (kind == NVT_TIER_BEGIN) == !record->len_bytes;
}

bool nvt_tier_record_decode(const struct nvt_tier_super *super,
                            const uint8_t in[NVT_TIER_HEAD_BYTES], struct nvt_tier_record *record)
{
    if (get_le32(in) != RECORD_MAGIC)
        return false;
    const uint32_t kind = get_le32(in + 4);
    const struct nvt_tier_record read = {.kind = (enum nvt_tier_kind)kind,
                                         .payload_bytes = get_le32(in + 8),
                                         .payload_sum = get_le32(in + 12),
                                         .position = get_le64(in + 16),
                                         .epoch = get_le64(in + 24),
                                         .offset = get_le64(in + 32),
                                         .len_bytes = get_le64(in + 40),
                                         .before = get_le64(in + 48),
                                         .check = get_le64(in + 56)};
    if (read.check != check_of(super, in, 56) || !is_record_sound(&read, kind))
        return false;
    *record = read;
    return true;
}
