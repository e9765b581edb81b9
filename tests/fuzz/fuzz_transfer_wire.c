/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cards and messages of the transfer engine: the first byte says what the rest is taken for. A
 * message that was taken is within its bounds, and encoded again it is the same. A card's sum is
 * set right, so that changed bytes get past it.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "transfer/wire/card.h"
#include "transfer/wire/message.h"

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static void seal(uint8_t *bytes, size_t size)
{
    struct xfw_card as = {.version = get_le16(bytes + 4),
                          .addresses_count = bytes[6],
                          .regions_count = get_le16(bytes + 40)};
    if (as.addresses_count && xfw_card_bytes(&as) == size)
        xfw_seal_card(bytes, &as);
}

static void check_card(const uint8_t *data, size_t size)
{
    static uint8_t bytes[XFW_CARD_MAX], again[XFW_CARD_MAX];
    struct xfw_card card;
    if (size > sizeof(bytes))
        return;
    memcpy(bytes, data, size);
    if (size >= XFW_HEADER_BYTES)
        seal(bytes, size);
    if (xfw_get_card(bytes, size, &card))
        return;
    demand(xfw_card_bytes(&card) == size);
    xfw_put_card(again, &card);
    for (uint32_t i = 0; i < card.regions_count; i++) {
        struct xfw_region one, two;
        xfw_get_region(bytes, &card, i, &one);
        demand(one.bytes && one.address + one.bytes >= one.address && one.rights &&
               one.rights <= 3 && xfw_is_name(one.name));
        xfw_put_region(again, &card, i, &one);
        xfw_get_region(again, &card, i, &two);
        demand(!memcmp(&one, &two, sizeof(one)));
    }
    xfw_seal_card(again, &card);
    struct xfw_card other;
    demand(!xfw_get_card(again, size, &other) && !memcmp(&card, &other, sizeof(card)));
}

static void check_message(const uint8_t *data, size_t size)
{
    struct xfw_message message;
    uint8_t header[XFW_MESSAGE_HEADER_BYTES];
    if (!xfw_get_message(data, size, &message))
        return;
    demand(message.bytes <= SW_XFER_NOTICE_MAX && message.tag);
    demand(xfw_put_message(header, &message) == size);
    header[5] = data[5]; /* reserved */
    demand(!memcmp(header, data, sizeof(header)));
    if (message.type != XFW_END)
        return;
    struct xfw_end one, two;
    uint8_t bytes[XFW_MESSAGE_HEADER_BYTES + XFW_END_BYTES];
    xfw_get_end(data, &one);
    xfw_put_end(bytes, &one);
    xfw_get_end(bytes, &two);
    demand(one.lane == two.lane && one.count == two.count);
}

static void check_connect(const uint8_t *data, size_t size)
{
    struct xfw_connect connect;
    uint8_t bytes[XFW_CONNECT_BYTES];
    if (xfw_get_connect(data, size, &connect))
        return;
    xfw_put_connect(bytes, &connect);
    demand(size >= sizeof(bytes) && !memcmp(bytes + 8, data + 8, sizeof(bytes) - 8));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct xfw_accept accept;
    if (!size)
        return 0;
    const uint8_t what = data[0] % 5;
    data++;
    size--;
    if (what == 0)
        check_card(data, size);
    else if (what == 1)
        check_message(data, size);
    else if (what == 2)
        check_connect(data, size);
    else if (what == 3 && xfw_get_accept(data, size, &accept))
        demand(accept.notices);
    else if (what == 4)
        demand((unsigned)xfw_get_reject(data, size) <= XFW_REASON_MEMORY);
    return 0;
}
