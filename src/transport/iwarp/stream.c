/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/iwarp/stream.h"

#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "wire/bytes.h"
#include "wire/iwarp/ddp.h"

enum { ROOM_LEAST = 64 };

void sw_iwarp_stream_init(struct sw_iwarp_stream *s, uint8_t *buffer, uint32_t room, bool has_crc)
{
    assert(room >= ROOM_LEAST);
    *s = (struct sw_iwarp_stream){.buffer = buffer, .room = room, .has_crc = has_crc};
}

static bool has_good_length(const struct sw_iwarp_stream *s, uint32_t ulpdu_len)
{
    return ulpdu_len >= SW_DDP_TAGGED_BYTES && sw_fpdu_len(ulpdu_len) <= s->room;
}

static enum sw_iwarp_found break_off(struct sw_iwarp_stream *s, enum sw_iwarp_found why)
{
    s->broken = why;
    s->have = 0;
    return why;
}

/* A whole FPDU. */
static enum sw_iwarp_found give_out(struct sw_iwarp_stream *s, const uint8_t *fpdu,
                                    struct sw_iwarp_fpdu *out)
{
    const uint32_t len = sw_be16_load(fpdu);
    if (s->has_crc && !sw_fpdu_is_intact(fpdu, len))
        return break_off(s, SW_IWARP_BAD_CRC);
    *out = (struct sw_iwarp_fpdu){.ulpdu = fpdu + SW_FPDU_LENGTH_BYTES,
                                  .len = len,
                                  .is_void = !s->has_crc && sw_fpdu_is_void(fpdu, len)};
    return SW_IWARP_FPDU;
}

/* Fills the buffer up to so many bytes, as far as they are there. */
static bool fill_to(struct sw_iwarp_stream *s, uint32_t wanted, const uint8_t *bytes, size_t len,
                    size_t *used)
{
    const size_t left = len - *used, missing = wanted - s->have;
    const size_t count = sw_min_size(missing, left);
    memcpy(s->buffer + s->have, bytes + *used, count);
    s->have += (uint32_t)count;
    *used += count;
    return count == missing;
}

static enum sw_iwarp_found put_together(struct sw_iwarp_stream *s, const uint8_t *bytes, size_t len,
                                        size_t *used, struct sw_iwarp_fpdu *out)
{
    if (s->have < SW_FPDU_LENGTH_BYTES && !fill_to(s, SW_FPDU_LENGTH_BYTES, bytes, len, used))
        return SW_IWARP_MORE;
    const uint32_t ulpdu_len = sw_be16_load(s->buffer);
    if (!has_good_length(s, ulpdu_len))
        return break_off(s, SW_IWARP_BAD_LENGTH);
    if (!fill_to(s, sw_fpdu_len(ulpdu_len), bytes, len, used))
        return SW_IWARP_MORE;
    s->have = 0;
    return give_out(s, s->buffer, out);
}

enum sw_iwarp_found sw_iwarp_stream_take(struct sw_iwarp_stream *s, const uint8_t *bytes,
                                         size_t len, size_t *used, struct sw_iwarp_fpdu *out)
{
    *used = 0;
    if (s->broken != SW_IWARP_MORE)
        return s->broken;
    if (len == 0)
        return SW_IWARP_MORE;
    if (s->have || len < SW_FPDU_LENGTH_BYTES)
        return put_together(s, bytes, len, used, out);
    const uint32_t ulpdu_len = sw_be16_load(bytes);
    if (!has_good_length(s, ulpdu_len))
        return break_off(s, SW_IWARP_BAD_LENGTH);
    if (len < sw_fpdu_len(ulpdu_len))
        return put_together(s, bytes, len, used, out);
    *used = sw_fpdu_len(ulpdu_len);
    return give_out(s, bytes, out);
}

bool sw_iwarp_stream_partial(const struct sw_iwarp_stream *s, struct sw_iwarp_partial *out)
{
    if (s->broken != SW_IWARP_MORE || s->have < SW_FPDU_LENGTH_BYTES)
        return false;
    const uint32_t len = sw_be16_load(s->buffer), have = s->have - SW_FPDU_LENGTH_BYTES;
    if (!has_good_length(s, len))
        return false;
    *out = (struct sw_iwarp_partial){
        .ulpdu = s->buffer + SW_FPDU_LENGTH_BYTES, .have = sw_min_u32(have, len), .len = len};
    return true;
}

void sw_iwarp_stream_skip(struct sw_iwarp_stream *s, uint32_t count)
{
    struct sw_iwarp_partial partial;
    assert(!s->has_crc && sw_iwarp_stream_partial(s, &partial));
    assert(count <= partial.len - partial.have);
    s->have += count;
}
