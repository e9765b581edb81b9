/* SPDX-License-Identifier: BSD-2-Clause */
/* Source: NVMe Base 2.0, 5.16.1.13. */
#include "nvme/host/multipath/ana.h"

#include <endian.h>
#include <string.h>

enum {
    HEADER_BYTES = 16,
    GROUPS_AT = 8,
    DESCRIPTOR_BYTES = 32,
    COUNT_AT = 4, /* of a descriptor, and the fields below */
    CHANGES_AT = 8,
    STATE_AT = 16,
    STATE_MASK = 0xf,
    NSID_BYTES = 4
};

static uint32_t ana_read_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof(value));
    return le32toh(value);
}

static bool ana_has(const struct nvh_ana_cursor *cursor, size_t bytes)
{
    return cursor->bytes - cursor->at >= bytes;
}

void nvh_ana_begin(struct nvh_ana_cursor *cursor, const void *page, size_t bytes)
{
    *cursor = (struct nvh_ana_cursor){.page = page, .bytes = bytes};
    if (!ana_has(cursor, HEADER_BYTES))
        return;
    uint16_t groups;
    memcpy(&groups, cursor->page + GROUPS_AT, sizeof(groups));
    cursor->groups_left = le16toh(groups);
    cursor->at = HEADER_BYTES;
}

/* The next descriptor that has namespaces. */
static bool next_group(struct nvh_ana_cursor *cursor)
{
    while (!cursor->nsids_left) {
        if (!cursor->groups_left || !ana_has(cursor, DESCRIPTOR_BYTES))
            return false;
        const uint8_t *descriptor = cursor->page + cursor->at;
        uint64_t changes;
        memcpy(&changes, descriptor + CHANGES_AT, sizeof(changes));
        cursor->groups_left--;
        cursor->at += DESCRIPTOR_BYTES;
        cursor->nsids_left = ana_read_u32(descriptor + COUNT_AT);
        cursor->entry.changes = le64toh(changes);
        cursor->entry.state = descriptor[STATE_AT] & STATE_MASK;
    }
    return true;
}

bool nvh_ana_next(struct nvh_ana_cursor *cursor, struct nvh_ana_entry *entry)
{
    if (!next_group(cursor) || !ana_has(cursor, NSID_BYTES))
        return false;
    cursor->entry.nsid = ana_read_u32(cursor->page + cursor->at);
    cursor->at += NSID_BYTES;
    cursor->nsids_left--;
    *entry = cursor->entry;
    return true;
}
