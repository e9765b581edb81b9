/* SPDX-License-Identifier: BSD-2-Clause */
/* Source: docs/transfer.md, "The protocol". */
#include "transfer/wire/message.h"

#include <string.h>

#include "common/base/bytes.h"
#include "transfer/wire/card.h"

enum { PRIVATE_MAGIC = 0x50585753, MESSAGE_MAGIC = 0x4d585753 };

static void message_put_greeting(uint8_t *out, size_t bytes)
{
    memset(out, 0, bytes);
    put_le32(out, PRIVATE_MAGIC);
    put_le16(out + 4, XFW_VERSION);
}

void xfw_put_connect(uint8_t out[XFW_CONNECT_BYTES], const struct xfw_connect *connect)
{
    message_put_greeting(out, XFW_CONNECT_BYTES);
    memcpy(out + 8, connect->called, sizeof(connect->called));
    memcpy(out + 24, connect->calling, sizeof(connect->calling));
    put_le64(out + 40, connect->layout);
    put_le64(out + 48, connect->session);
    out[6] = connect->lane;
    out[7] = connect->count;
}

void xfw_put_accept(uint8_t out[XFW_ACCEPT_BYTES], const struct xfw_accept *accept)
{
    message_put_greeting(out, XFW_ACCEPT_BYTES);
    memcpy(out + 8, accept->instance, sizeof(accept->instance));
    put_le16(out + 24, accept->notices);
    put_le16(out + 26, accept->notice_bytes_max);
    put_le32(out + 28, accept->abilities);
}

void xfw_put_reject(uint8_t out[XFW_REJECT_BYTES], enum xfw_reason reason)
{
    message_put_greeting(out, XFW_REJECT_BYTES);
    put_le16(out + 6, (uint16_t)reason);
}

uint32_t xfw_put_message(uint8_t out[XFW_MESSAGE_HEADER_BYTES], const struct xfw_message *message)
{
    const uint32_t bytes = XFW_MESSAGE_HEADER_BYTES + message->bytes;
    put_le32(out, MESSAGE_MAGIC);
    out[4] = (uint8_t)message->type;
    out[5] = 0;
    put_le16(out + 6, (uint16_t)bytes);
    put_le64(out + 8, message->tag);
    return bytes;
}

enum xfw_reason xfw_get_connect(const uint8_t *in, size_t bytes, struct xfw_connect *connect)
{
    if (bytes < XFW_REJECT_BYTES || get_le32(in) != PRIVATE_MAGIC)
        return XFW_REASON_MALFORMED;
    if (get_le16(in + 4) != XFW_VERSION)
        return XFW_REASON_VERSION;
    if (bytes < XFW_CONNECT_BYTES)
        return XFW_REASON_MALFORMED;
    memcpy(connect->called, in + 8, sizeof(connect->called));
    memcpy(connect->calling, in + 24, sizeof(connect->calling));
    connect->layout = get_le64(in + 40);
    connect->session = get_le64(in + 48);
    connect->lane = in[6];
    connect->count = in[7];
    return connect->lane < SW_XFER_ADDRESSES_MAX ? 0 : XFW_REASON_MALFORMED;
}

bool xfw_get_accept(const uint8_t *in, size_t bytes, struct xfw_accept *accept)
{
    if (bytes < XFW_ACCEPT_BYTES || get_le32(in) != PRIVATE_MAGIC ||
        get_le16(in + 4) != XFW_VERSION)
        return false;
    memcpy(accept->instance, in + 8, sizeof(accept->instance));
    accept->notices = get_le16(in + 24);
    accept->notice_bytes_max = get_le16(in + 26);
    accept->abilities = get_le32(in + 28);
    return accept->notices;
}

enum xfw_reason xfw_get_reject(const uint8_t *in, size_t bytes)
{
    if (bytes < XFW_REJECT_BYTES || get_le32(in) != PRIVATE_MAGIC)
        return 0;
    const uint16_t reason = get_le16(in + 6);
    return reason <= XFW_REASON_MEMORY ? (enum xfw_reason)reason : 0;
}

static bool has_length(uint8_t type, struct xfw_message *message)
{
    const uint32_t bytes = message->bytes;
    message->type = (enum xfw_type)type;
    switch (type) {
    case XFW_NOTICE:
        return true;
    case XFW_ACK:
    case XFW_ENDED:
        return !bytes;
    case XFW_SUM:
        return bytes && !(bytes % XFW_SUM_BYTES);
    case XFW_SUMS:
        return !(bytes % 4) && bytes <= 4 * XFW_SUMS_MAX;
    case XFW_END:
        return bytes == XFW_END_BYTES;
    default:
        return false;
    }
}

bool xfw_get_message(const uint8_t *in, size_t bytes, struct xfw_message *message)
{
    if (bytes < XFW_MESSAGE_HEADER_BYTES || bytes > XFW_MESSAGE_MAX ||
        get_le32(in) != MESSAGE_MAGIC || get_le16(in + 6) != bytes)
        return false;
    message->bytes = (uint32_t)(bytes - XFW_MESSAGE_HEADER_BYTES);
    message->tag = get_le64(in + 8);
    return message->tag && has_length(in[4], message);
}

void xfw_put_sum(uint8_t *message, uint32_t index, const struct xfw_sum *sum)
{
    uint8_t *at = message + XFW_MESSAGE_HEADER_BYTES + (size_t)index * XFW_SUM_BYTES;
    put_le64(at, sum->address);
    put_le32(at + 8, sum->key);
    put_le32(at + 12, sum->bytes);
}

void xfw_get_sum(const uint8_t *message, uint32_t index, struct xfw_sum *sum)
{
    const uint8_t *at = message + XFW_MESSAGE_HEADER_BYTES + (size_t)index * XFW_SUM_BYTES;
    sum->address = get_le64(at);
    sum->key = get_le32(at + 8);
    sum->bytes = get_le32(at + 12);
}

void xfw_put_sums(uint8_t *message, uint32_t index, uint32_t sum)
{
    put_le32(message + XFW_MESSAGE_HEADER_BYTES + (size_t)index * 4, sum);
}

uint32_t xfw_get_sums(const uint8_t *message, uint32_t index)
{
    return get_le32(message + XFW_MESSAGE_HEADER_BYTES + (size_t)index * 4);
}

void xfw_put_end(uint8_t *message, const struct xfw_end *end)
{
    uint8_t *at = message + XFW_MESSAGE_HEADER_BYTES;
    memset(at, 0, XFW_END_BYTES);
    at[0] = end->lane;
    at[1] = end->count;
}

void xfw_get_end(const uint8_t *message, struct xfw_end *end)
{
    const uint8_t *at = message + XFW_MESSAGE_HEADER_BYTES;
    *end = (struct xfw_end){.lane = at[0], .count = at[1]};
}
