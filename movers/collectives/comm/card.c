/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/card.h"

#include <string.h>

#include "common/base/bytes.h"

enum { MAGIC = 0x4c435753 /* "SWCL" */ };
/* Beside the plan. */
#define KEEPS_RANKS (UINT32_C(1) << 31)
#define ANY_ORDER (UINT32_C(1) << 30)

static void card_put_head(uint8_t *at)
{
    put_le32(at, MAGIC);
    put_le16(at + 4, COLL_VERSION);
}

static bool is_head(const uint8_t *at, size_t bytes, size_t expected)
{
    return bytes >= expected && get_le32(at) == MAGIC && get_le16(at + 4) == COLL_VERSION;
}

static void put_address(uint8_t *at, const struct sockaddr_storage *address)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
    const bool is_v6 = address->ss_family == AF_INET6;
    put_le16(at, is_v6 ? 6 : 4);
    put_le16(at + 2, ntohs(is_v6 ? v6->sin6_port : v4->sin_port));
    put_le32(at + 4, is_v6 ? v6->sin6_scope_id : 0);
    if (is_v6)
        memcpy(at + 8, &v6->sin6_addr, 16);
    else
        memcpy(at + 8, &v4->sin_addr, 4);
}

static bool get_address(const uint8_t *at, struct sockaddr_storage *address)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
    const uint16_t family = get_le16(at);
    memset(address, 0, sizeof(*address));
    if (family == 6) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(get_le16(at + 2));
        v6->sin6_scope_id = get_le32(at + 4);
        memcpy(&v6->sin6_addr, at + 8, 16);
    } else {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(get_le16(at + 2));
        memcpy(&v4->sin_addr, at + 8, 4);
    }
    return family == 4 || family == 6;
}

void coll_card_put(uint8_t bytes[COLL_CARD_BYTES], const struct coll_card *card)
{
    memset(bytes, 0, COLL_CARD_BYTES);
    card_put_head(bytes);
    put_address(bytes + 8, &card->address);
    memcpy(bytes + 32, card->token, COLL_TOKEN_BYTES);
    put_le64(bytes + 48, card->instance);
    put_le64(bytes + 56, card->host);
    put_le64(bytes + 64, card->mailbox);
    put_le32(bytes + 72, card->key);
    put_le32(bytes + 76, card->eager_bytes);
    put_le32(bytes + 80, card->rank);
    put_le32(bytes + 84, card->size);
    put_le32(bytes + 88, card->plan | (card->keeps_ranks ? KEEPS_RANKS : 0) |
                             (card->is_any_order ? ANY_ORDER : 0));
    put_le32(bytes + 92, card->processor);
}

enum coll_card_fault coll_card_get(const uint8_t bytes[COLL_CARD_BYTES], struct coll_card *card)
{
    if (get_le32(bytes) != MAGIC)
        return COLL_CARD_GARBAGE;
    if (get_le16(bytes + 4) != COLL_VERSION)
        return COLL_CARD_VERSION;
    memcpy(card->token, bytes + 32, COLL_TOKEN_BYTES);
    card->instance = get_le64(bytes + 48);
    card->host = get_le64(bytes + 56);
    card->mailbox = get_le64(bytes + 64);
    card->key = get_le32(bytes + 72);
    card->eager_bytes = get_le32(bytes + 76);
    card->rank = get_le32(bytes + 80);
    card->size = get_le32(bytes + 84);
    card->plan = get_le32(bytes + 88) & ~(KEEPS_RANKS | ANY_ORDER);
    card->keeps_ranks = get_le32(bytes + 88) & KEEPS_RANKS;
    card->is_any_order = get_le32(bytes + 88) & ANY_ORDER;
    card->processor = get_le32(bytes + 92);
    return get_address(bytes + 8, &card->address) ? COLL_CARD_FINE : COLL_CARD_GARBAGE;
}

void coll_hello_put(uint8_t bytes[COLL_HELLO_BYTES], const struct coll_hello *hello)
{
    memset(bytes, 0, COLL_HELLO_BYTES);
    card_put_head(bytes);
    memcpy(bytes + 8, hello->token, COLL_TOKEN_BYTES);
    put_le64(bytes + 24, hello->instance);
    put_le32(bytes + 32, hello->rank);
}

bool coll_hello_get(const uint8_t *bytes, size_t count, struct coll_hello *hello)
{
    if (!is_head(bytes, count, COLL_HELLO_BYTES))
        return false;
    memcpy(hello->token, bytes + 8, COLL_TOKEN_BYTES);
    hello->instance = get_le64(bytes + 24);
    hello->rank = get_le32(bytes + 32);
    return true;
}

void coll_answer_put(uint8_t bytes[COLL_ANSWER_BYTES], enum coll_answer answer, uint64_t instance,
                     uint32_t rank)
{
    memset(bytes, 0, COLL_ANSWER_BYTES);
    card_put_head(bytes);
    put_le16(bytes + 6, (uint16_t)answer);
    put_le64(bytes + 8, instance);
    put_le32(bytes + 16, rank);
}

bool coll_answer_get(const uint8_t *bytes, size_t count, enum coll_answer *answer,
                     uint64_t *instance, uint32_t *rank)
{
    if (!is_head(bytes, count, COLL_ANSWER_BYTES) || get_le16(bytes + 6) > COLL_NO_ROOM)
        return false;
    *answer = (enum coll_answer)get_le16(bytes + 6);
    *instance = get_le64(bytes + 8);
    *rank = get_le32(bytes + 16);
    return true;
}
