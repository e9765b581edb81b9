/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/rendezvous/message.h"

#include <errno.h>
#include <string.h>

#include "common/base/bytes.h"
#include "common/rendezvous/rendezvous.h"

static const uint8_t magic[4] = {'S', 'W', 'r', 'v'};

void mover_meet_put_header(uint8_t bytes[MOVER_MEET_HEADER_BYTES], enum mover_meet_kind kind,
                           uint32_t body_bytes)
{
    memset(bytes, 0, MOVER_MEET_HEADER_BYTES);
    memcpy(bytes, magic, sizeof(magic));
    put_le16(bytes + 4, MOVER_MEET_VERSION);
    put_le16(bytes + 6, (uint16_t)kind);
    put_le32(bytes + 8, body_bytes);
}

bool mover_meet_get_header(const uint8_t bytes[MOVER_MEET_HEADER_BYTES],
                           struct mover_meet_header *header)
{
    *header = (struct mover_meet_header){.version = get_le16(bytes + 4),
                                         .kind = get_le16(bytes + 6),
                                         .body_bytes = get_le32(bytes + 8)};
    return !memcmp(bytes, magic, sizeof(magic));
}

void mover_meet_put_join(uint8_t bytes[MOVER_MEET_JOIN_BYTES], const struct mover_meet_join *join)
{
    put_le32(bytes, join->rank);
    put_le32(bytes + 4, join->size);
    put_le32(bytes + 8, join->card_bytes);
    put_le32(bytes + 12, join->patience_ms);
    memcpy(bytes + 16, join->nonce, sizeof(join->nonce));
}

bool mover_meet_get_join(const uint8_t *bytes, size_t len, struct mover_meet_join *join)
{
    if (len < MOVER_MEET_JOIN_BYTES)
        return false;
    *join = (struct mover_meet_join){.rank = get_le32(bytes),
                                     .size = get_le32(bytes + 4),
                                     .card_bytes = get_le32(bytes + 8),
                                     .patience_ms = get_le32(bytes + 12)};
    memcpy(join->nonce, bytes + 16, sizeof(join->nonce));
    return len - MOVER_MEET_JOIN_BYTES == join->card_bytes && join->card_bytes &&
           join->card_bytes <= MOVER_RENDEZVOUS_CARD_MAX && join->size &&
           join->size <= MOVER_RENDEZVOUS_RANKS_MAX && join->rank < join->size;
}

size_t mover_meet_put_refusal(uint8_t bytes[MOVER_MEET_REFUSAL_BYTES + MOVER_MEET_TEXT_MAX],
                              enum mover_meet_reason reason, const char *text)
{
    const size_t len = strnlen(text, MOVER_MEET_TEXT_MAX);
    put_le32(bytes, reason);
    memcpy(bytes + MOVER_MEET_REFUSAL_BYTES, text, len);
    return MOVER_MEET_REFUSAL_BYTES + len;
}

bool mover_meet_get_text(const uint8_t *bytes, size_t len, char text[MOVER_MEET_TEXT_MAX + 1])
{
    if (len > MOVER_MEET_TEXT_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        text[i] = bytes[i] >= ' ' && bytes[i] < 0x7f ? (char)bytes[i] : '?';
    text[len] = '\0';
    return true;
}

bool mover_meet_get_refusal(const uint8_t *bytes, size_t len, enum mover_meet_reason *reason,
                            char text[MOVER_MEET_TEXT_MAX + 1])
{
    if (len < MOVER_MEET_REFUSAL_BYTES)
        return false;
    const uint32_t number = get_le32(bytes);
    if (number < MOVER_MEET_ABSENT || number > MOVER_MEET_FULL)
        return false;
    *reason = (enum mover_meet_reason)number;
    return mover_meet_get_text(bytes + MOVER_MEET_REFUSAL_BYTES, len - MOVER_MEET_REFUSAL_BYTES,
                               text);
}

int mover_meet_errno(enum mover_meet_reason reason)
{
    switch (reason) {
    case MOVER_MEET_ABSENT:
        return -ETIMEDOUT;
    case MOVER_MEET_GONE:
        return -ECONNRESET;
    case MOVER_MEET_UNLIKE:
        return -EPROTO;
    case MOVER_MEET_OTHER_VERSION:
        return -EPROTONOSUPPORT;
    case MOVER_MEET_UNPROVEN:
        return -EACCES;
    case MOVER_MEET_FULL:
        return -ENOMEM;
    }
    return -EPROTO;
}
