/* SPDX-License-Identifier: BSD-2-Clause */
/* Source: docs/transfer.md, "The card". */
#include "transfer/wire/card.h"

#include <string.h>

#include "common/base/bytes.h"
#include "transfer/core/sum.h"

enum { MAGIC = 0x43585753, SUM_OFFSET = 12, VERSIONED_BYTES = 8 };

static uint32_t sum_card(const uint8_t *card, size_t bytes)
{
    static const uint8_t zero[4];
    uint32_t sum = xfc_sum(0, card, SUM_OFFSET);
    sum = xfc_sum(sum, zero, sizeof(zero));
    return xfc_sum(sum, card + SUM_OFFSET + 4, bytes - SUM_OFFSET - 4);
}

static uint32_t keys_of(const struct xfw_card *card)
{
    return card->version == XFW_VERSION_RAILS ? card->addresses_count : 1;
}

static size_t offset_of_region(const struct xfw_card *card, uint32_t index)
{
    return XFW_HEADER_BYTES + card->addresses_count * XFW_ADDRESS_BYTES +
           (size_t)index * (XFW_REGION_BYTES + (keys_of(card) - 1) * XFW_KEY_BYTES);
}

size_t xfw_card_bytes(const struct xfw_card *card)
{
    return offset_of_region(card, card->regions_count);
}

void xfw_put_card(uint8_t *out, const struct xfw_card *card)
{
    memset(out, 0, xfw_card_bytes(card));
    put_le32(out, MAGIC);
    put_le16(out + 4, card->version);
    out[6] = (uint8_t)card->addresses_count;
    put_le32(out + 8, (uint32_t)xfw_card_bytes(card));
    memcpy(out + 16, card->instance, sizeof(card->instance));
    put_le64(out + 32, card->layout);
    put_le16(out + 40, (uint16_t)card->regions_count);
    for (uint32_t i = 0; i < card->addresses_count; i++) {
        uint8_t *at = out + XFW_HEADER_BYTES + i * XFW_ADDRESS_BYTES;
        at[0] = card->addresses[i].family;
        put_le16(at + 2, card->addresses[i].port);
        memcpy(at + 8, card->addresses[i].bytes, sizeof(card->addresses[i].bytes));
    }
}

void xfw_put_region(uint8_t *out, const struct xfw_card *card, uint32_t index,
                    const struct xfw_region *region)
{
    uint8_t *at = out + offset_of_region(card, index);
    memcpy(at, region->name, strnlen(region->name, SW_XFER_NAME_MAX));
    put_le64(at + 32, region->address);
    put_le64(at + 40, region->bytes);
    put_le32(at + 48, region->keys[0]);
    put_le32(at + 52, region->rights);
    for (uint32_t i = 1; i < keys_of(card); i++)
        put_le32(at + XFW_REGION_BYTES + (i - 1) * XFW_KEY_BYTES, region->keys[i]);
}

void xfw_seal_card(uint8_t *out, const struct xfw_card *card)
{
    put_le32(out + SUM_OFFSET, sum_card(out, xfw_card_bytes(card)));
}

bool xfw_is_name(const char *text)
{
    size_t len = 0;
    for (; len <= SW_XFER_NAME_MAX && text[len]; len++)
        if ((uint8_t)text[len] < 0x20 || text[len] == 0x7f)
            return false;
    return len <= SW_XFER_NAME_MAX;
}

static bool card_get_address(const uint8_t *at, struct xfw_address *address)
{
    address->family = at[0];
    address->port = get_le16(at + 2);
    memcpy(address->bytes, at + 8, sizeof(address->bytes));
    return (address->family == 4 || address->family == 6) && address->port;
}

void xfw_get_region(const uint8_t *in, const struct xfw_card *card, uint32_t index,
                    struct xfw_region *region)
{
    const uint8_t *at = in + offset_of_region(card, index);
    memset(region, 0, sizeof(*region));
    memcpy(region->name, at, strnlen((const char *)at, SW_XFER_NAME_MAX));
    region->address = get_le64(at + 32);
    region->bytes = get_le64(at + 40);
    for (uint32_t i = 0; i < SW_XFER_ADDRESSES_MAX; i++)
        region->keys[i] = i && i < keys_of(card)
                              ? get_le32(at + XFW_REGION_BYTES + (i - 1) * XFW_KEY_BYTES)
                              : get_le32(at + 48);
    region->rights = get_le32(at + 52) & (SW_XFER_MAY_READ | SW_XFER_MAY_WRITE);
}

static bool is_region(const uint8_t *in, const struct xfw_card *card, uint32_t index)
{
    struct xfw_region region;
    const char *name = (const char *)in + offset_of_region(card, index);
    if (!memchr(name, 0, XFW_NAME_BYTES) || !xfw_is_name(name))
        return false;
    xfw_get_region(in, card, index, &region);
    return region.bytes && region.address <= UINT64_MAX - region.bytes && region.rights;
}

enum sw_xfer_status xfw_get_card(const uint8_t *in, size_t bytes, struct xfw_card *card)
{
    memset(card, 0, sizeof(*card));
    if (bytes < VERSIONED_BYTES || get_le32(in) != MAGIC)
        return SW_XFER_CARD;
    card->version = get_le16(in + 4);
    if (card->version != XFW_VERSION && card->version != XFW_VERSION_RAILS)
        return SW_XFER_VERSION;
    if (bytes < XFW_HEADER_BYTES)
        return SW_XFER_CARD;
    card->addresses_count = in[6];
    card->regions_count = get_le16(in + 40);
    if (!card->addresses_count || card->addresses_count > SW_XFER_ADDRESSES_MAX ||
        card->regions_count > SW_XFER_REGIONS_MAX || get_le32(in + 8) != bytes ||
        xfw_card_bytes(card) != bytes || get_le32(in + SUM_OFFSET) != sum_card(in, bytes))
        return SW_XFER_CARD;
    memcpy(card->instance, in + 16, sizeof(card->instance));
    card->layout = get_le64(in + 32);
    for (uint32_t i = 0; i < card->addresses_count; i++)
        if (!card_get_address(in + XFW_HEADER_BYTES + i * XFW_ADDRESS_BYTES, &card->addresses[i]))
            return SW_XFER_CARD;
    for (uint32_t i = 0; i < card->regions_count; i++)
        if (!is_region(in, card, i))
            return SW_XFER_CARD;
    return SW_XFER_OK;
}
