/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What ranks say while they find each other: the first byte says what the rest is taken for. A
 * message that was taken is within its bounds, and encoded again it is the same; whoever comes by
 * it, the roll stays one of so many ranks.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/rendezvous/message.h"
#include "common/rendezvous/roll.h"

enum { SIZE = 4, CARD_BYTES = 8 };

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static void check_header(const uint8_t *data, size_t size)
{
    struct mover_meet_header header;
    uint8_t bytes[MOVER_MEET_HEADER_BYTES];
    if (size < MOVER_MEET_HEADER_BYTES || !mover_meet_get_header(data, &header) ||
        header.version != MOVER_MEET_VERSION)
        return;
    mover_meet_put_header(bytes, (enum mover_meet_kind)header.kind, header.body_bytes);
    demand(!memcmp(bytes, data, MOVER_MEET_PROVEN_BYTES));
}

/* Joins, one behind the other. */
static void check_joins(const uint8_t *data, size_t size)
{
    static struct mover_roll roll;
    uint8_t cards[SIZE * CARD_BYTES] = {0}, bytes[MOVER_MEET_JOIN_BYTES];
    char text[MOVER_MEET_TEXT_MAX], absent[200];
    mover_roll_open(&roll, SIZE, cards, CARD_BYTES, cards);
    while (size >= MOVER_MEET_JOIN_BYTES) {
        struct mover_meet_join join = {.card_bytes = 0};
        const size_t len =
            size < MOVER_MEET_JOIN_BYTES + CARD_BYTES ? size : MOVER_MEET_JOIN_BYTES + CARD_BYTES;
        if (mover_meet_get_join(data, len, &join)) {
            demand(join.rank < join.size && join.size <= MOVER_RENDEZVOUS_RANKS_MAX);
            mover_meet_put_join(bytes, &join);
            demand(!memcmp(bytes, data, sizeof(bytes)));
            const uint8_t *card = data + MOVER_MEET_JOIN_BYTES;
            if (mover_roll_take(&roll, &join, card, "here", text, sizeof(text)))
                demand(!memcmp(cards + join.rank * CARD_BYTES, card, CARD_BYTES));
        }
        data += len;
        size -= len;
    }
    mover_roll_absent(&roll, absent, sizeof(absent));
    demand(roll.present >= 1 && roll.present <= SIZE && strlen(absent) < sizeof(absent));
}

static void check_refusal(const uint8_t *data, size_t size)
{
    enum mover_meet_reason reason;
    char text[MOVER_MEET_TEXT_MAX + 1];
    uint8_t bytes[MOVER_MEET_REFUSAL_BYTES + MOVER_MEET_TEXT_MAX];
    if (!mover_meet_get_refusal(data, size, &reason, text))
        return;
    demand(mover_meet_errno(reason) < 0 && strlen(text) == size - MOVER_MEET_REFUSAL_BYTES);
    for (const char *at = text; *at; at++)
        demand(*at >= ' ' && *at < 0x7f);
    demand(mover_meet_put_refusal(bytes, reason, text) == size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    if (data[0] % 3 == 0)
        check_header(data + 1, size - 1);
    else if (data[0] % 3 == 1)
        check_joins(data + 1, size - 1);
    else
        check_refusal(data + 1, size - 1);
    return 0;
}
