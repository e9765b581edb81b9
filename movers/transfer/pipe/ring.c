/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/pipe/ring.h"

#include <assert.h>

#include "common/base/bytes.h"

static uint64_t whole_lines(uint64_t bytes)
{
    return (bytes + PIPE_LINE - 1) / PIPE_LINE * PIPE_LINE;
}

/* Never 0, which is what a line without a record begins with. */
static uint32_t next_mark(uint32_t *marks)
{
    return (*marks)++ | 1u << 31;
}

static struct pipe_record put_head(struct pipe_out *out, uint32_t length)
{
    const struct pipe_record record = {.offset = (uint32_t)(out->produced & (out->bytes - 1)),
                                       .bytes = PIPE_HEAD + (length == PIPE_PAD ? 0 : length)};
    put_le32(out->mirror + record.offset, next_mark(&out->marks));
    put_le32(out->mirror + record.offset + 4, length);
    return record;
}

unsigned pipe_out_reserve(struct pipe_out *out, uint32_t bytes, struct pipe_record records[2])
{
    assert(out->consumed <= out->produced && out->reclaimed <= out->produced);
    const uint64_t size = whole_lines(PIPE_HEAD + (uint64_t)bytes);
    const uint64_t to_end = out->bytes - (out->produced & (out->bytes - 1));
    const uint64_t skipped = to_end < size ? to_end : 0;
    const uint64_t end = out->produced + skipped + size;
    unsigned count = 0;
    if (end - out->consumed > out->bytes || end - out->reclaimed > out->bytes)
        return 0;
    if (skipped) {
        records[count++] = put_head(out, PIPE_PAD);
        out->produced += skipped;
    }
    records[count++] = put_head(out, bytes);
    out->produced += size;
    return count;
}

bool pipe_out_credit(struct pipe_out *out, uint64_t consumed)
{
    if (consumed < out->consumed || consumed > out->produced || consumed % PIPE_LINE)
        return false;
    out->consumed = consumed;
    return true;
}

static void clear_lines(struct pipe_in *in, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += PIPE_LINE)
        put_le32(in->ring + ((in->consumed + at) & (in->bytes - 1)), 0);
    in->consumed += bytes;
}

enum pipe_look pipe_in_look(struct pipe_in *in, uint32_t bytes_max, const uint8_t **message,
                            uint32_t *bytes)
{
    for (;;) {
        uint8_t *at = in->ring + (in->consumed & (in->bytes - 1));
        const uint64_t to_end = in->bytes - (in->consumed & (in->bytes - 1));
        /* It pairs with the order in which the peer's device writes: the mark comes last. */
        const uint32_t mark =
            le32toh(__atomic_load_n((const uint32_t *)(void *)at, __ATOMIC_ACQUIRE));
        if (mark != (in->marks | 1u << 31))
            return PIPE_EMPTY;
        const uint32_t length =
            le32toh(__atomic_load_n((const uint32_t *)(void *)(at + 4), __ATOMIC_RELAXED));
        if (length != PIPE_PAD) {
            if (length > bytes_max || whole_lines(PIPE_HEAD + (uint64_t)length) > to_end)
                return PIPE_BROKEN;
            *message = at + PIPE_HEAD;
            *bytes = length;
            return PIPE_MESSAGE;
        }
        in->marks++;
        clear_lines(in, to_end);
    }
}

void pipe_in_drop(struct pipe_in *in, uint32_t bytes)
{
    in->marks++;
    clear_lines(in, whole_lines(PIPE_HEAD + (uint64_t)bytes));
}
