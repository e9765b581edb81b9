/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/liveness.h"

#include <string.h>

#include "wire/bytes.h"

/* A class of vendors with an OUI (IBTA Vol1 16.5), here one of locally administered addresses. The
 * method is Send, which wants no answer, so a stock kernel drops it without a word. */
enum { CLASS = 0x4e, CLASS_VERSION = 1, VERSION = 1, OUI_AT = 37, DATA_AT = 40 };
static const uint8_t oui[3] = {0x02, 'S', 'W'};

#define WORD_MAGIC 0x5357u

void sw_liveness_mad_encode(const struct sw_liveness_mad *message, uint8_t mad[SW_MAD_BYTES])
{
    const struct sw_mad_header header = {
        .base_version = SW_MAD_BASE_VERSION,
        .class = CLASS,
        .class_version = CLASS_VERSION,
        .method = SW_MAD_METHOD_SEND,
        .transaction = message->nonce,
        .attribute = (uint16_t)message->kind,
    };
    uint8_t *data = mad + DATA_AT;
    memset(mad, 0, SW_MAD_BYTES);
    sw_mad_header_encode(&header, mad);
    memcpy(mad + OUI_AT, oui, sizeof(oui));
    data[0] = VERSION;
    sw_be16_store(data + 2, message->port);
    sw_be16_store(data + 4, message->from);
    sw_be16_store(data + 6, message->to);
    sw_be64_store(data + 8, message->nonce);
    sw_be64_store(data + 16, message->caller);
    sw_be64_store(data + 24, message->called);
}

bool sw_liveness_mad_decode(const uint8_t mad[SW_MAD_BYTES], struct sw_liveness_mad *out)
{
    struct sw_mad_header header;
    const uint8_t *data = mad + DATA_AT;
    sw_mad_header_decode(mad, &header);
    if (header.base_version != SW_MAD_BASE_VERSION || header.class != CLASS ||
        header.class_version != CLASS_VERSION || header.method != SW_MAD_METHOD_SEND ||
        memcmp(mad + OUI_AT, oui, sizeof(oui)) != 0 || data[0] != VERSION ||
        header.attribute < SW_LIVENESS_MAD_ASK || header.attribute > SW_LIVENESS_MAD_INVITE)
        return false;
    *out = (struct sw_liveness_mad){
        .kind = (enum sw_liveness_mad_kind)header.attribute,
        .port = sw_be16_load(data + 2),
        .from = sw_be16_load(data + 4),
        .to = sw_be16_load(data + 6),
        .nonce = sw_be64_load(data + 8),
        .caller = sw_be64_load(data + 16),
        .called = sw_be64_load(data + 24),
    };
    return true;
}

void sw_liveness_word_encode(const struct sw_liveness_word *word,
                             uint8_t out[SW_LIVENESS_WORD_BYTES])
{
    sw_be16_store(out, WORD_MAGIC);
    out[2] = (uint8_t)word->kind;
    out[3] = word->mark;
    sw_be16_store(out + 4, word->port);
    sw_be16_store(out + 6, 0);
    sw_be32_store(out + 8, word->from);
    sw_be32_store(out + 12, word->to);
    sw_be64_store(out + 16, word->token);
}

bool sw_liveness_word_decode(const uint8_t bytes[SW_LIVENESS_WORD_BYTES],
                             struct sw_liveness_word *out)
{
    if (sw_be16_load(bytes) != WORD_MAGIC || bytes[2] < SW_LIVENESS_HELLO ||
        bytes[2] > SW_LIVENESS_GOODBYE)
        return false;
    *out = (struct sw_liveness_word){
        .kind = (enum sw_liveness_word_kind)bytes[2],
        .mark = bytes[3],
        .port = sw_be16_load(bytes + 4),
        .from = sw_be32_load(bytes + 8),
        .to = sw_be32_load(bytes + 12),
        .token = sw_be64_load(bytes + 16),
    };
    return true;
}
