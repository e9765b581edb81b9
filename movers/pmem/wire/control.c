/* SPDX-License-Identifier: BSD-2-Clause */
/* Layouts and what each bad value gets: docs/pmem.md. */
#include "pmem/wire/control.h"

#include <string.h>

#include "common/base/bytes.h"
#include "common/base/utf8.h"

enum {
    MAGIC = 0x314d5053,
    HEADER_BYTES = 16,
    BUSY_BYTES = HEADER_BYTES + PMF_NAME_BYTES,
    OPEN_FIXED_BYTES = 96,
    RANGE_BYTES = 32,
    LIST_FIXED_BYTES = 24,
    ENTRY_BYTES = 80,
    COUNTS_FIXED_BYTES = 72,
    COUNTS_ENTRY_BYTES = 64,
};

static void put_name(uint8_t *at, const char *name)
{
    const size_t len = strnlen(name, SW_PMEM_NAME_MAX);
    memset(at, 0, PMF_NAME_BYTES);
    memcpy(at, name, len);
}

static bool get_name(const uint8_t *at, char name[PMF_NAME_BYTES])
{
    memcpy(name, at, PMF_NAME_BYTES);
    if (!memchr(name, 0, PMF_NAME_BYTES))
        return false;
    if (!mover_text_is_fit(name))
        return false;
    memset(name + strlen(name), 0, PMF_NAME_BYTES - strlen(name));
    return true;
}

static void control_put_greeting(uint8_t *out, uint16_t last)
{
    put_le32(out, MAGIC);
    put_le16(out + 4, PMF_VERSION);
    put_le16(out + 6, last);
}

size_t pmf_put_connect(uint8_t out[PMF_CONNECT_BYTES], const char *label)
{
    control_put_greeting(out, 0);
    put_name(out + 8, label);
    return PMF_CONNECT_BYTES;
}

size_t pmf_put_accept(uint8_t out[PMF_ACCEPT_BYTES], const uint8_t instance[16])
{
    control_put_greeting(out, 0);
    memcpy(out + 8, instance, 16);
    return PMF_ACCEPT_BYTES;
}

size_t pmf_put_reject(uint8_t out[PMF_REJECT_BYTES], enum pmf_reason reason)
{
    control_put_greeting(out, (uint16_t)reason);
    return PMF_REJECT_BYTES;
}

enum pmf_reason pmf_get_connect(const uint8_t *in, size_t bytes, char label[PMF_NAME_BYTES])
{
    memset(label, 0, PMF_NAME_BYTES);
    if (bytes < 8 || get_le32(in) != MAGIC)
        return PMF_REASON_MALFORMED;
    if (get_le16(in + 4) != PMF_VERSION)
        return PMF_REASON_VERSION;
    if (bytes < PMF_CONNECT_BYTES || !get_name(in + 8, label))
        return PMF_REASON_MALFORMED;
    return 0;
}

bool pmf_get_accept(const uint8_t *in, size_t bytes, uint8_t instance[16])
{
    if (bytes < PMF_ACCEPT_BYTES || get_le32(in) != MAGIC || get_le16(in + 4) != PMF_VERSION)
        return false;
    memcpy(instance, in + 8, 16);
    return true;
}

enum pmf_reason pmf_get_reject(const uint8_t *in, size_t bytes)
{
    if (bytes < PMF_REJECT_BYTES || get_le32(in) != MAGIC)
        return 0;
    const uint16_t reason = get_le16(in + 6);
    return reason <= PMF_REASON_MEMORY ? (enum pmf_reason)reason : 0;
}

const char *pmf_reason_text(enum pmf_reason reason)
{
    switch (reason) {
    case PMF_REASON_VERSION:
        return "it speaks another version of the protocol";
    case PMF_REASON_MALFORMED:
        return "it does not understand the request";
    case PMF_REASON_RIGHTS:
        return "this address has no rights there; 'sidewire pmem serve --allow' gives them";
    case PMF_REASON_MANY:
        return "it has too many clients";
    case PMF_REASON_MEMORY:
        return "its device has no room for another client";
    }
    return "it gives no reason that is known";
}

static void put_header(uint8_t *out, uint8_t type, uint8_t status, size_t bytes, uint32_t tag)
{
    put_le32(out, MAGIC);
    out[4] = type;
    out[5] = status;
    put_le16(out + 6, (uint16_t)bytes);
    put_le32(out + 8, tag);
    put_le32(out + 12, 0);
}

size_t pmf_put_request(uint8_t out[PMF_REQUEST_MAX], const struct pmf_request *request)
{
    const size_t bytes = request->type == PMF_OPEN ? PMF_REQUEST_MAX : HEADER_BYTES;
    put_header(out, request->type, 0, bytes, request->tag);
    if (request->type == PMF_OPEN)
        put_name(out + HEADER_BYTES, request->name);
    if (request->type == PMF_OPEN)
        put_le32(out + 12, request->wishes);
    return bytes;
}

enum pmf_status pmf_get_request(const uint8_t *in, size_t bytes, struct pmf_request *out)
{
    memset(out, 0, sizeof(*out));
    if (bytes < HEADER_BYTES)
        return PMF_MALFORMED;
    out->type = in[4] & 0x7f;
    out->tag = get_le32(in + 8);
    if (get_le32(in) != MAGIC || in[5] || get_le16(in + 6) != bytes)
        return PMF_MALFORMED;
    switch (in[4]) {
    case PMF_OPEN:
        if (bytes != PMF_REQUEST_MAX || !get_name(in + HEADER_BYTES, out->name))
            return PMF_MALFORMED;
        out->wishes = get_le32(in + 12) & PMF_ALONE;
        return PMF_OK;
    case PMF_LIST:
    case PMF_COUNTS:
        return bytes == HEADER_BYTES ? PMF_OK : PMF_MALFORMED;
    }
    return PMF_UNKNOWN;
}

static void put_range(uint8_t *at, const struct pmf_range *range)
{
    put_le64(at, range->offset);
    put_le64(at + 8, range->bytes);
    put_le64(at + 16, range->address);
    put_le32(at + 24, range->key);
    put_le32(at + 28, range->rights);
}

/* Name to flags lie alike in both answers. */
static void put_region(uint8_t *at, const struct pmf_region *region)
{
    put_name(at, region->name);
    put_le64(at + 48, region->bytes);
    memcpy(at + 56, region->identity, 16);
    at[72] = region->kind;
    at[73] = region->flags;
}

static size_t put_open(uint8_t *out, const struct pmf_answer *answer)
{
    put_region(out + HEADER_BYTES, &answer->regions[0]);
    put_le16(out + 90, (uint16_t)answer->count);
    put_le32(out + 92, 0);
    for (uint32_t i = 0; i < answer->count; i++)
        put_range(out + OPEN_FIXED_BYTES + i * RANGE_BYTES, &answer->ranges[i]);
    return OPEN_FIXED_BYTES + answer->count * RANGE_BYTES;
}

static size_t put_list(uint8_t *out, const struct pmf_answer *answer)
{
    memset(out + HEADER_BYTES, 0, LIST_FIXED_BYTES - HEADER_BYTES);
    put_le16(out + HEADER_BYTES, (uint16_t)answer->count);
    for (uint32_t i = 0; i < answer->count; i++) {
        uint8_t *at = out + LIST_FIXED_BYTES + i * ENTRY_BYTES;
        put_region(at, &answer->regions[i]);
        put_le16(at + 74, answer->regions[i].rights);
        put_le32(at + 76, 0);
    }
    return LIST_FIXED_BYTES + answer->count * ENTRY_BYTES;
}

static size_t put_counts(uint8_t *out, const struct pmf_answer *answer)
{
    const struct pmf_counts *counts = &answer->counts;
    put_le64(out + 16, counts->uptime_ms);
    put_le64(out + 24, counts->connections);
    put_le64(out + 32, counts->refused);
    put_le64(out + 40, counts->malformed);
    put_le64(out + 48, counts->ended);
    put_le32(out + 56, counts->clients);
    put_le32(out + 60, counts->clients_max);
    put_le32(out + 64, answer->count);
    put_le32(out + 68, 0);
    for (uint32_t i = 0; i < answer->count; i++) {
        const struct pmf_region_counts *region = &answer->region_counts[i];
        uint8_t *at = out + COUNTS_FIXED_BYTES + i * COUNTS_ENTRY_BYTES;
        put_name(at, region->name);
        put_le64(at + 48, region->opens);
        put_le32(at + 56, region->clients);
        put_le32(at + 60, region->writers);
    }
    return COUNTS_FIXED_BYTES + answer->count * COUNTS_ENTRY_BYTES;
}

size_t pmf_put_answer(uint8_t out[PMF_ANSWER_MAX], const struct pmf_answer *answer)
{
    size_t bytes = HEADER_BYTES;
    if (!answer->status)
        bytes = answer->type == PMF_OPEN   ? put_open(out, answer)
                : answer->type == PMF_LIST ? put_list(out, answer)
                                           : put_counts(out, answer);
    if (answer->status == PMF_BUSY) {
        put_name(out + HEADER_BYTES, answer->regions[0].name);
        bytes = BUSY_BYTES;
    }
    put_header(out, answer->type | PMF_IS_ANSWER, answer->status, bytes, answer->tag);
    return bytes;
}

static bool get_region(const uint8_t *at, struct pmf_region *region)
{
    region->bytes = get_le64(at + 48);
    memcpy(region->identity, at + 56, 16);
    region->kind = at[72];
    region->flags = at[73] & (PMF_VISIBLE | PMF_PERSISTENT);
    return get_name(at, region->name) && region->bytes && region->kind >= SW_PMEM_VOLATILE &&
           region->kind <= SW_PMEM_PCI;
}

static bool get_range(const uint8_t *at, uint64_t region_bytes, struct pmf_range *range)
{
    range->offset = get_le64(at);
    range->bytes = get_le64(at + 8);
    range->address = get_le64(at + 16);
    range->key = get_le32(at + 24);
    range->rights = get_le32(at + 28) & (SW_PMEM_READ | SW_PMEM_WRITE);
    return range->rights && range->bytes && range->bytes <= region_bytes &&
           range->offset <= region_bytes - range->bytes &&
           range->address <= UINT64_MAX - range->bytes;
}

static bool get_open(const uint8_t *in, size_t bytes, struct pmf_answer *out)
{
    if (bytes < OPEN_FIXED_BYTES || !get_region(in + HEADER_BYTES, &out->regions[0]))
        return false;
    out->count = get_le16(in + 90);
    if (!out->count || out->count > SW_PMEM_RANGES_MAX ||
        bytes != OPEN_FIXED_BYTES + out->count * RANGE_BYTES)
        return false;
    for (uint32_t i = 0; i < out->count; i++)
        if (!get_range(in + OPEN_FIXED_BYTES + i * RANGE_BYTES, out->regions[0].bytes,
                       &out->ranges[i]))
            return false;
    return true;
}

static bool get_list(const uint8_t *in, size_t bytes, struct pmf_answer *out)
{
    if (bytes < LIST_FIXED_BYTES)
        return false;
    out->count = get_le16(in + HEADER_BYTES);
    if (out->count > PMF_LIST_MAX || bytes != LIST_FIXED_BYTES + out->count * ENTRY_BYTES)
        return false;
    for (uint32_t i = 0; i < out->count; i++) {
        const uint8_t *at = in + LIST_FIXED_BYTES + i * ENTRY_BYTES;
        if (!get_region(at, &out->regions[i]))
            return false;
        out->regions[i].rights = get_le16(at + 74) & (SW_PMEM_READ | SW_PMEM_WRITE);
    }
    return true;
}

static bool get_counts(const uint8_t *in, size_t bytes, struct pmf_answer *out)
{
    if (bytes < COUNTS_FIXED_BYTES)
        return false;
    out->counts = (struct pmf_counts){get_le64(in + 16), get_le64(in + 24), get_le64(in + 32),
                                      get_le64(in + 40), get_le64(in + 48), get_le32(in + 56),
                                      get_le32(in + 60)};
    out->count = get_le32(in + 64);
    if (out->count > PMF_LIST_MAX || bytes != COUNTS_FIXED_BYTES + out->count * COUNTS_ENTRY_BYTES)
        return false;
    for (uint32_t i = 0; i < out->count; i++) {
        const uint8_t *at = in + COUNTS_FIXED_BYTES + i * COUNTS_ENTRY_BYTES;
        struct pmf_region_counts *region = &out->region_counts[i];
        if (!get_name(at, region->name))
            return false;
        region->opens = get_le64(at + 48);
        region->clients = get_le32(at + 56);
        region->writers = get_le32(at + 60);
    }
    return true;
}

bool pmf_get_answer(const uint8_t *in, size_t bytes, struct pmf_answer *out)
{
    memset(out, 0, sizeof(*out));
    if (bytes < HEADER_BYTES || get_le32(in) != MAGIC || get_le16(in + 6) != bytes)
        return false;
    out->type = in[4] & 0x7f;
    out->status = in[5];
    out->tag = get_le32(in + 8);
    if (!(in[4] & PMF_IS_ANSWER) || out->status > PMF_STATUS_MAX)
        return false;
    if (out->status == PMF_BUSY)
        return bytes == BUSY_BYTES && get_name(in + HEADER_BYTES, out->regions[0].name);
    if (out->status)
        return bytes == HEADER_BYTES;
    if (out->type == PMF_OPEN)
        return get_open(in, bytes, out);
    if (out->type == PMF_COUNTS)
        return get_counts(in, bytes, out);
    return out->type == PMF_LIST && get_list(in, bytes, out);
}
