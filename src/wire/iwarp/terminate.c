/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/iwarp/terminate.h"

#include <string.h>

#include "wire/bytes.h"

enum { CONTROL_BYTES = 4, LENGTH_BYTES = 2 };
/* Byte 2: which headers follow. */
enum { HAS_LENGTH = 0x80, HAS_DDP = 0x40, HAS_READ = 0x20, SWAPPED_MASK = 0x07 };
enum { TAGGED = 0x80, OPCODE_MASK = 0x0f };

struct sw_terminate sw_terminate_about(uint16_t cause, const uint8_t *ulpdu, uint32_t len)
{
    struct sw_terminate out = {.cause = cause};
    if (!ulpdu || len < 2)
        return out;
    const uint8_t header_len = ulpdu[0] & TAGGED ? SW_DDP_TAGGED_BYTES : SW_DDP_UNTAGGED_BYTES;
    if (len < header_len)
        return out;
    out.segment_len = (uint16_t)len;
    out.ddp_len = header_len;
    memcpy(out.ddp, ulpdu, header_len);
    const bool reads = !(ulpdu[0] & TAGGED) && (ulpdu[1] & OPCODE_MASK) == SW_RDMAP_READ_REQUEST;
    if (reads && len - header_len >= SW_RDMAP_READ_BYTES) {
        out.read_len = SW_RDMAP_READ_BYTES;
        memcpy(out.read, ulpdu + header_len, SW_RDMAP_READ_BYTES);
    }
    return out;
}

uint32_t sw_terminate_encode(const struct sw_terminate *terminate, uint8_t *to)
{
    uint8_t *at = to + CONTROL_BYTES;
    sw_be16_store(to, terminate->cause);
    to[2] = to[3] = 0;
    if (terminate->ddp_len) {
        to[2] = HAS_LENGTH | HAS_DDP | (terminate->read_len ? HAS_READ : 0);
        sw_be16_store(at, terminate->segment_len);
        memcpy(at + LENGTH_BYTES, terminate->ddp, terminate->ddp_len);
        at += LENGTH_BYTES + terminate->ddp_len;
        memcpy(at, terminate->read, terminate->read_len);
        at += terminate->read_len;
    }
    return (uint32_t)(at - to);
}

bool sw_terminate_check(const uint8_t *body, uint32_t len)
{
    (void)body;
    return len >= CONTROL_BYTES;
}

static uint8_t where_of(const uint8_t *body, bool is_swapped)
{
    if (!is_swapped)
        return body[0];
    return (uint8_t)((body[0] & 0x0f) << 4 | body[0] >> 4);
}

static uint8_t headers_of(const uint8_t *body, bool is_swapped)
{
    if (!is_swapped)
        return body[2];
    return (uint8_t)((body[2] & 1 ? HAS_LENGTH : 0) | (body[2] & 2 ? HAS_DDP : 0) |
                     (body[2] & 4 ? HAS_READ : 0));
}

void sw_terminate_decode(const uint8_t *body, uint32_t len, struct sw_terminate *out)
{
    const bool is_swapped = (body[2] & SWAPPED_MASK) && !(body[2] & ~SWAPPED_MASK & 0xff);
    const uint8_t headers = headers_of(body, is_swapped), *at = body + CONTROL_BYTES;
    uint32_t left = len - CONTROL_BYTES;
    *out = (struct sw_terminate){.cause = SW_TERMINATE(where_of(body, is_swapped), body[1]),
                                 .is_swapped = is_swapped};
    if (headers & HAS_LENGTH) {
        if (left < LENGTH_BYTES)
            return;
        out->segment_len = sw_be16_load(at);
        at += LENGTH_BYTES;
        left -= LENGTH_BYTES;
    }
    if (!(headers & HAS_DDP) || left == 0)
        return;
    const uint8_t header_len = at[0] & TAGGED ? SW_DDP_TAGGED_BYTES : SW_DDP_UNTAGGED_BYTES;
    if (left < header_len)
        return;
    out->ddp_len = header_len;
    memcpy(out->ddp, at, header_len);
    if ((headers & HAS_READ) && left - header_len >= SW_RDMAP_READ_BYTES) {
        out->read_len = SW_RDMAP_READ_BYTES;
        memcpy(out->read, at + header_len, SW_RDMAP_READ_BYTES);
    }
}
