/* SPDX-License-Identifier: BSD-2-Clause */
#include "pmem/log/layout.h"

#include <isa-l/crc64.h>
#include <string.h>

#include "common/base/bytes.h"

enum { VERSION = 1, CHECK_OFFSET = 56, RECORD_MAGIC = 0x524c5753 /* "SWLR" */ };

static const char magic[8] = "SWPMLOG";

static bool layout_is_zero(const uint8_t *at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (at[i])
            return false;
    return true;
}

/* A line whose last eight bytes are its check; `behind` bytes follow it. */
static uint64_t line_check(const struct pml_geometry *geometry, const uint8_t *line,
                           uint64_t behind)
{
    uint64_t check = crc64_ecma_refl(0, geometry->id, PML_ID_BYTES);
    check = crc64_ecma_refl(check, line, CHECK_OFFSET);
    return behind ? crc64_ecma_refl(check, line + PML_LINE_BYTES, behind) : check;
}

uint64_t pml_record_bytes(uint32_t payload_bytes)
{
    return PML_LINE_BYTES +
           ((uint64_t)payload_bytes + PML_LINE_BYTES - 1) / PML_LINE_BYTES * PML_LINE_BYTES;
}

void pml_origin(const struct pml_geometry *geometry, struct pml_mark *out)
{
    memset(out, 0, sizeof(*out));
    out->check = crc64_ecma_refl(0, geometry->id, PML_ID_BYTES);
}

void pml_control_format(const struct pml_geometry *geometry, uint16_t copy, uint8_t *control)
{
    struct pml_slot slot = {.count = 1};
    memset(control, 0, PML_CONTROL_BYTES);
    memcpy(control, magic, sizeof(magic));
    put_le32(control + 8, VERSION);
    put_le16(control + 12, geometry->copies);
    put_le16(control + 14, copy);
    memcpy(control + 16, geometry->id, PML_ID_BYTES);
    put_le64(control + 32, geometry->ring_bytes);
    put_le32(control + 40, geometry->payload_max);
    put_le16(control + 44, geometry->quorum);
    put_le64(control + CHECK_OFFSET, crc64_ecma_refl(0, control, CHECK_OFFSET));
    pml_origin(geometry, &slot.head);
    pml_slot_format(geometry, &slot, control + PML_SLOT_OFFSET);
}

enum pml_verdict pml_superblock_parse(const uint8_t *control, struct pml_geometry *geometry,
                                      uint16_t *copy)
{
    struct pml_geometry read;
    const uint16_t which = get_le16(control + 14);
    if (memcmp(control, magic, sizeof(magic)) != 0)
        return PML_NO_LOG;
    if (get_le32(control + 8) != VERSION)
        return PML_UNKNOWN_VERSION;
    if (get_le64(control + CHECK_OFFSET) != crc64_ecma_refl(0, control, CHECK_OFFSET))
        return PML_DAMAGED;
    read.copies = get_le16(control + 12);
    memcpy(read.id, control + 16, PML_ID_BYTES);
    read.ring_bytes = get_le64(control + 32);
    read.payload_max = get_le32(control + 40);
    read.quorum = get_le16(control + 44);
    if (!pml_geometry_is_valid(&read) || which >= read.copies || !layout_is_zero(control + 46, 10))
        return PML_DAMAGED;
    *geometry = read;
    *copy = which;
    return PML_FINE;
}

void pml_slot_format(const struct pml_geometry *geometry, const struct pml_slot *slot, uint8_t *to)
{
    memset(to, 0, PML_LINE_BYTES);
    put_le64(to, slot->count);
    put_le64(to + 8, slot->head.position);
    put_le64(to + 16, slot->head.check);
    put_le64(to + 24, slot->head.epoch);
    put_le64(to + 32, slot->head.sequence);
    put_le64(to + CHECK_OFFSET, line_check(geometry, to, 0));
}

void pml_slot_parse(const struct pml_geometry *geometry, const uint8_t *control,
                    struct pml_slot *out)
{
    memset(out, 0, sizeof(*out));
    for (unsigned i = 1; i <= 2; i++) {
        const uint8_t *at = control + (size_t)i * PML_SLOT_OFFSET;
        const uint64_t count = get_le64(at);
        if (get_le64(at + CHECK_OFFSET) != line_check(geometry, at, 0) ||
            !layout_is_zero(at + 40, 16) || get_le64(at + 8) % PML_LINE_BYTES != 0 ||
            count <= out->count || count > PML_NUMBER_MAX || get_le64(at + 8) > PML_NUMBER_MAX ||
            get_le64(at + 24) > PML_NUMBER_MAX || get_le64(at + 32) > PML_NUMBER_MAX)
            continue;
        out->count = count;
        out->head = (struct pml_mark){get_le64(at + 8), get_le64(at + 16), get_le64(at + 24),
                                      get_le64(at + 32)};
    }
}

uint64_t pml_word_at(const uint8_t *control, size_t offset)
{
    return get_le64(control + offset);
}

void pml_record_format(const struct pml_geometry *geometry, const struct pml_mark *at,
                       uint64_t epoch, const void *payload, uint32_t payload_bytes, uint8_t *to,
                       struct pml_mark *next)
{
    const uint64_t all = pml_record_bytes(payload_bytes);
    struct pml_mark behind = {at->position + all, 0, epoch, at->sequence + 1};
    memset(to, 0, PML_LINE_BYTES);
    put_le32(to, RECORD_MAGIC);
    put_le32(to + 8, payload_bytes);
    put_le64(to + 16, at->position);
    put_le64(to + 24, epoch);
    put_le64(to + 32, at->sequence);
    put_le64(to + 40, at->check);
    if (payload_bytes)
        memcpy(to + PML_LINE_BYTES, payload, payload_bytes);
    memset(to + PML_LINE_BYTES + payload_bytes, 0, all - PML_LINE_BYTES - payload_bytes);
    behind.check = line_check(geometry, to, all - PML_LINE_BYTES);
    put_le64(to + CHECK_OFFSET, behind.check);
    *next = behind;
}

enum pml_found pml_record_parse(const struct pml_geometry *geometry, const struct pml_mark *at,
                                const uint8_t *bytes, uint64_t len, struct pml_record *out,
                                uint64_t *need)
{
    if (len < PML_LINE_BYTES) {
        *need = PML_LINE_BYTES;
        return PML_MORE;
    }
    const uint32_t payload_bytes = get_le32(bytes + 8);
    const uint64_t epoch = get_le64(bytes + 24);
    if (get_le32(bytes) != RECORD_MAGIC || payload_bytes > geometry->payload_max ||
        get_le64(bytes + 16) != at->position || epoch < at->epoch ||
        get_le64(bytes + 32) != at->sequence || get_le64(bytes + 40) != at->check ||
        !layout_is_zero(bytes + 4, 4) || !layout_is_zero(bytes + 12, 4) ||
        !layout_is_zero(bytes + 48, 8))
        return PML_END;
    const uint64_t all = pml_record_bytes(payload_bytes), check = get_le64(bytes + CHECK_OFFSET);
    if (len < all) {
        *need = all;
        return PML_MORE;
    }
    if (check != line_check(geometry, bytes, all - PML_LINE_BYTES))
        return PML_END;
    out->payload_bytes = payload_bytes;
    out->payload = bytes + PML_LINE_BYTES;
    out->next = (struct pml_mark){at->position + all, check, epoch, at->sequence + 1};
    return PML_RECORD;
}
