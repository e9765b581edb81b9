/* SPDX-License-Identifier: BSD-2-Clause */
/* The card of docs/transfer.md: checked once, then read by getters that cannot fail. No I/O. */
#ifndef SW_MOVERS_TRANSFER_CARD_H
#define SW_MOVERS_TRANSFER_CARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sidewire/transfer.h"

enum {
    XFW_VERSION = 1,       /* of the protocol, and of a card whose regions have one key */
    XFW_VERSION_RAILS = 2, /* of a card whose regions have a key for each address */
    XFW_NAME_BYTES = SW_XFER_NAME_MAX + 1,
    XFW_HEADER_BYTES = 48,
    XFW_ADDRESS_BYTES = 24,
    XFW_REGION_BYTES = 56,
    XFW_KEY_BYTES = 4, /* of a region, for each address but the first */
    XFW_CARD_MAX =
        XFW_HEADER_BYTES + SW_XFER_ADDRESSES_MAX * XFW_ADDRESS_BYTES +
        SW_XFER_REGIONS_MAX * (XFW_REGION_BYTES + (SW_XFER_ADDRESSES_MAX - 1) * XFW_KEY_BYTES),
};

struct xfw_address {
    uint8_t family; /* 4 or 6 */
    uint16_t port;
    uint8_t bytes[16]; /* in network order */
};

struct xfw_card {
    uint8_t instance[SW_XFER_INSTANCE_BYTES];
    uint16_t version;
    uint64_t layout;
    uint32_t addresses_count, regions_count;
    struct xfw_address addresses[SW_XFER_ADDRESSES_MAX];
};

struct xfw_region {
    char name[XFW_NAME_BYTES];
    uint64_t address, bytes;
    uint32_t keys[SW_XFER_ADDRESSES_MAX]; /* for each address; of version 1 they are one */
    uint32_t rights;
};

size_t xfw_card_bytes(const struct xfw_card *card);
/* Header and addresses; then each region; then the sum over all of it. */
void xfw_put_card(uint8_t *out, const struct xfw_card *card);
void xfw_put_region(uint8_t *out, const struct xfw_card *card, uint32_t index,
                    const struct xfw_region *region);
void xfw_seal_card(uint8_t *out, const struct xfw_card *card);

/* OK, CARD or VERSION. Once it is OK all regions are right as well. */
enum sw_xfer_status xfw_get_card(const uint8_t *in, size_t bytes, struct xfw_card *card);
/* Reads a region of a card that was checked; the index is within its count. */
void xfw_get_region(const uint8_t *in, const struct xfw_card *card, uint32_t index,
                    struct xfw_region *region);
/* Fit to be a name: no control characters, not too long. */
bool xfw_is_name(const char *text);

#endif
