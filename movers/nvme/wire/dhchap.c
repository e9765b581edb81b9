/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/wire/dhchap.h"

#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"

/* Where things are. The first six bytes of all: type, id, two reserved, the transaction. */
enum {
    TYPE_COMMON = 0,
    TYPE_DHCHAP = 1,
    ID_AT = 1,
    TRANSACTION_AT = 4,
    /* Negotiate, and each of its descriptors. */
    CONCATENATION_AT = 6,
    DESCRIPTOR_COUNT_AT = 7,
    DESCRIPTORS_AT = 8,
    DESCRIPTOR_BYTES = 64,
    HASH_COUNT_AT = 2,
    GROUP_COUNT_AT = 3,
    HASHES_AT = 4,
    GROUPS_AT = 34,
    /* Challenge, reply, success1. */
    HASH_BYTES_AT = 6,
    HASH_AT = 8,
    VALID_AT = 8,
    GROUP_AT = 9,
    DH_BYTES_AT = 10,
    SEQUENCE_AT = 12,
    HEADER_BYTES = 16,
    /* Failures. */
    REASON_AT = 6,
    EXPLANATION_AT = 7,
    FAILURE_BYTES = 8,
};

uint8_t nvf_hash_bytes(uint8_t hash)
{
    static const uint8_t bytes[] = {[NVF_SHA256] = 32, [NVF_SHA384] = 48, [NVF_SHA512] = 64};
    return hash < sizeof(bytes) ? bytes[hash] : 0;
}

int nvf_dh_bytes(uint8_t group)
{
    static const int bytes[] = {0, 256, 384, 512, 768, 1024};
    return group < sizeof(bytes) / sizeof(*bytes) ? bytes[group] : -1;
}

static bool is_hash_length(uint8_t bytes)
{
    return bytes == 32 || bytes == 48 || bytes == 64;
}

static bool decode_negotiate(const uint8_t *bytes, size_t len, struct nvf_auth_message *out)
{
    if (len < DESCRIPTORS_AT)
        return false;
    const size_t count = bytes[DESCRIPTOR_COUNT_AT];
    if (len < DESCRIPTORS_AT + count * DESCRIPTOR_BYTES)
        return false;
    out->concatenation = bytes[CONCATENATION_AT];
    for (size_t i = 0; i < count && !out->offers_dhchap; i++) {
        const uint8_t *at = bytes + DESCRIPTORS_AT + i * DESCRIPTOR_BYTES;
        if (at[0] != NVF_AUTH_DHCHAP)
            continue;
        if (at[HASH_COUNT_AT] > NVF_AUTH_LIST_MAX || at[GROUP_COUNT_AT] > NVF_AUTH_LIST_MAX)
            return false;
        out->offers_dhchap = true;
        out->hash_count = at[HASH_COUNT_AT];
        out->group_count = at[GROUP_COUNT_AT];
        memcpy(out->hashes, at + HASHES_AT, out->hash_count);
        memcpy(out->groups, at + GROUPS_AT, out->group_count);
    }
    return true;
}

static bool decode_challenge(const uint8_t *bytes, size_t len, struct nvf_auth_message *out)
{
    out->hash_bytes = bytes[HASH_BYTES_AT];
    out->hash = bytes[HASH_AT];
    out->group = bytes[GROUP_AT];
    out->dh_bytes = get_le16(bytes + DH_BYTES_AT);
    out->sequence = get_le32(bytes + SEQUENCE_AT);
    if (!is_hash_length(out->hash_bytes) || out->dh_bytes > NVF_DH_MAX ||
        len < (size_t)HEADER_BYTES + out->hash_bytes + out->dh_bytes)
        return false;
    memcpy(out->challenge, bytes + HEADER_BYTES, out->hash_bytes);
    memcpy(out->dh, bytes + HEADER_BYTES + out->hash_bytes, out->dh_bytes);
    return true;
}

/* The place of the challenge is there even if it is not valid. */
static bool decode_reply(const uint8_t *bytes, size_t len, struct nvf_auth_message *out)
{
    out->hash_bytes = bytes[HASH_BYTES_AT];
    out->is_valid = bytes[VALID_AT] & 1;
    out->dh_bytes = get_le16(bytes + DH_BYTES_AT);
    out->sequence = get_le32(bytes + SEQUENCE_AT);
    if (!is_hash_length(out->hash_bytes) || out->dh_bytes > NVF_DH_MAX ||
        len < (size_t)HEADER_BYTES + 2u * out->hash_bytes + out->dh_bytes)
        return false;
    memcpy(out->response, bytes + HEADER_BYTES, out->hash_bytes);
    if (out->is_valid)
        memcpy(out->challenge, bytes + HEADER_BYTES + out->hash_bytes, out->hash_bytes);
    memcpy(out->dh, bytes + HEADER_BYTES + 2 * out->hash_bytes, out->dh_bytes);
    return true;
}

static bool decode_success1(const uint8_t *bytes, size_t len, struct nvf_auth_message *out)
{
    out->hash_bytes = bytes[HASH_BYTES_AT];
    out->is_valid = bytes[VALID_AT] & 1;
    if (!is_hash_length(out->hash_bytes))
        return false;
    if (!out->is_valid)
        return true;
    if (len < (size_t)HEADER_BYTES + out->hash_bytes)
        return false;
    memcpy(out->response, bytes + HEADER_BYTES, out->hash_bytes);
    return true;
}

bool nvf_auth_decode(const uint8_t *bytes, size_t len, struct nvf_auth_message *out)
{
    *out = (struct nvf_auth_message){0};
    if (len < FAILURE_BYTES)
        return false;
    const uint8_t type = bytes[0], id = bytes[ID_AT];
    out->id = (enum nvf_auth_id)id;
    out->transaction = get_le16(bytes + TRANSACTION_AT);
    if (type == TYPE_COMMON && id == NVF_AUTH_NEGOTIATE)
        return decode_negotiate(bytes, len, out);
    if (type == TYPE_COMMON && (id == NVF_AUTH_FAILURE1 || id == NVF_AUTH_FAILURE2)) {
        out->reason = bytes[REASON_AT];
        out->explanation = bytes[EXPLANATION_AT];
        return true;
    }
    if (type != TYPE_DHCHAP || len < HEADER_BYTES)
        return false;
    if (id == NVF_AUTH_CHALLENGE)
        return decode_challenge(bytes, len, out);
    if (id == NVF_AUTH_REPLY)
        return decode_reply(bytes, len, out);
    if (id == NVF_AUTH_SUCCESS1)
        return decode_success1(bytes, len, out);
    return id == NVF_AUTH_SUCCESS2;
}

static size_t encode_negotiate(const struct nvf_auth_message *m, uint8_t *out)
{
    uint8_t *at = out + DESCRIPTORS_AT;
    assert(m->hash_count <= NVF_AUTH_LIST_MAX && m->group_count <= NVF_AUTH_LIST_MAX);
    out[CONCATENATION_AT] = m->concatenation;
    if (!m->offers_dhchap)
        return DESCRIPTORS_AT;
    out[DESCRIPTOR_COUNT_AT] = 1;
    at[0] = NVF_AUTH_DHCHAP;
    at[HASH_COUNT_AT] = m->hash_count;
    at[GROUP_COUNT_AT] = m->group_count;
    memcpy(at + HASHES_AT, m->hashes, m->hash_count);
    memcpy(at + GROUPS_AT, m->groups, m->group_count);
    return DESCRIPTORS_AT + DESCRIPTOR_BYTES;
}

static size_t encode_challenge(const struct nvf_auth_message *m, uint8_t *out)
{
    out[HASH_AT] = m->hash;
    out[GROUP_AT] = m->group;
    put_le16(out + DH_BYTES_AT, m->dh_bytes);
    put_le32(out + SEQUENCE_AT, m->sequence);
    memcpy(out + HEADER_BYTES, m->challenge, m->hash_bytes);
    memcpy(out + HEADER_BYTES + m->hash_bytes, m->dh, m->dh_bytes);
    return (size_t)HEADER_BYTES + m->hash_bytes + m->dh_bytes;
}

static size_t encode_reply(const struct nvf_auth_message *m, uint8_t *out)
{
    out[VALID_AT] = m->is_valid;
    put_le16(out + DH_BYTES_AT, m->dh_bytes);
    put_le32(out + SEQUENCE_AT, m->sequence);
    memcpy(out + HEADER_BYTES, m->response, m->hash_bytes);
    if (m->is_valid)
        memcpy(out + HEADER_BYTES + m->hash_bytes, m->challenge, m->hash_bytes);
    memcpy(out + HEADER_BYTES + 2 * m->hash_bytes, m->dh, m->dh_bytes);
    return (size_t)HEADER_BYTES + 2u * m->hash_bytes + m->dh_bytes;
}

static size_t encode_success1(const struct nvf_auth_message *m, uint8_t *out)
{
    out[VALID_AT] = m->is_valid;
    if (!m->is_valid)
        return HEADER_BYTES;
    memcpy(out + HEADER_BYTES, m->response, m->hash_bytes);
    return (size_t)HEADER_BYTES + m->hash_bytes;
}

size_t nvf_auth_encode(const struct nvf_auth_message *m, uint8_t out[NVF_AUTH_MESSAGE_MAX])
{
    assert(m->hash_bytes <= NVF_HASH_MAX && m->dh_bytes <= NVF_DH_MAX);
    memset(out, 0, NVF_AUTH_MESSAGE_MAX);
    out[0] = TYPE_DHCHAP;
    out[ID_AT] = (uint8_t)m->id;
    put_le16(out + TRANSACTION_AT, m->transaction);
    out[HASH_BYTES_AT] = m->hash_bytes;
    switch (m->id) {
    case NVF_AUTH_NEGOTIATE:
        out[0] = TYPE_COMMON;
        return encode_negotiate(m, out);
    case NVF_AUTH_CHALLENGE:
        return encode_challenge(m, out);
    case NVF_AUTH_REPLY:
        return encode_reply(m, out);
    case NVF_AUTH_SUCCESS1:
        return encode_success1(m, out);
    case NVF_AUTH_SUCCESS2:
        return HEADER_BYTES;
    case NVF_AUTH_FAILURE1:
    case NVF_AUTH_FAILURE2:
        out[0] = TYPE_COMMON;
        out[REASON_AT] = m->reason;
        out[EXPLANATION_AT] = m->explanation;
        return FAILURE_BYTES;
    }
    abort(); /* no id of ours */
}

const char *nvf_auth_fault_text(uint8_t fault)
{
    static const char *const texts[] = {
        [NVF_AUTH_FAILED] = "a response is wrong, or a secret is missing",
        [NVF_AUTH_NOT_USABLE] = "DH-HMAC-CHAP is not offered",
        [NVF_AUTH_CONCAT_MISMATCH] = "secure concatenation is asked for",
        [NVF_AUTH_HASH_NOT_USABLE] = "no hash that is offered is strong enough",
        [NVF_AUTH_GROUP_NOT_USABLE] = "no group that is offered is strong enough",
        [NVF_AUTH_INCORRECT_PAYLOAD] = "a message is malformed",
        [NVF_AUTH_INCORRECT_MESSAGE] = "a message is out of turn",
    };
    if (fault < sizeof(texts) / sizeof(*texts) && texts[fault])
        return texts[fault];
    return "for a reason that NVMe has no name for";
}
