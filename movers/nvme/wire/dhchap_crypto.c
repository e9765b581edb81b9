/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/wire/dhchap_crypto.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/dh.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>

enum { CRC_BYTES = 4, ENCODED_MAX = (NVF_HASH_MAX + CRC_BYTES + 2) / 3 * 4 };

static const char *const digest_names[] = {
    [NVF_SHA256] = "SHA256", [NVF_SHA384] = "SHA384", [NVF_SHA512] = "SHA512"};

static int base64_value(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Whole quadruples only, and no bits left over. Returns the length, or 0. */
static size_t decode_base64(const char *text, size_t len, uint8_t out[NVF_HASH_MAX + CRC_BYTES])
{
    size_t count = 0, digits = len;
    uint32_t bits = 0;
    while (digits && text[digits - 1] == '=' && len - digits < 2)
        digits--;
    if (!len || len % 4 || len > ENCODED_MAX)
        return 0;
    for (size_t i = 0; i < digits; i++) {
        const int value = base64_value(text[i]);
        if (value < 0)
            return 0;
        bits = bits << 6 | (uint32_t)value;
        if (i % 4 == 0)
            continue;
        if (count == NVF_HASH_MAX + CRC_BYTES)
            return 0;
        out[count++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    const size_t left = digits % 4 ? 6 - 2 * (digits % 4 - 1) : 0;
    return left && bits & ((1u << left) - 1) ? 0 : count;
}

static uint32_t crc32_of(const uint8_t *bytes, size_t len) /* IEEE 802.3, reflected */
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < len; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

const char *nvf_secret_parse(const char *text, struct nvf_secret *out)
{
    uint8_t bytes[NVF_HASH_MAX + CRC_BYTES];
    if (strncmp(text, "DHHC-1:0", 8) != 0 || text[8] < '0' || text[8] > '3' || text[9] != ':')
        return "not of the form DHHC-1:00:BASE64: with 00, 01, 02 or 03; make one with "
               "`nvme gen-dhchap-key`";
    const char *encoded = text + 10, *end = strchr(encoded, ':');
    if (!end || end[1])
        return "without a colon at its end, or with more behind it; write it whole";
    const size_t len = decode_base64(encoded, (size_t)(end - encoded), bytes);
    const size_t secret_bytes = len < CRC_BYTES ? 0 : len - CRC_BYTES;
    const char *fault = NULL;
    if (secret_bytes != 32 && secret_bytes != 48 && secret_bytes != 64)
        fault = "not 32, 48 or 64 bytes in base64; make one with `nvme gen-dhchap-key`";
    else if (crc32_of(bytes, secret_bytes) !=
             (bytes[secret_bytes] | (uint32_t)bytes[secret_bytes + 1] << 8 |
              (uint32_t)bytes[secret_bytes + 2] << 16 | (uint32_t)bytes[secret_bytes + 3] << 24))
        fault = "with a wrong checksum: a letter is mistyped; copy it anew";
    if (!fault) {
        *out = (struct nvf_secret){.hash = (uint8_t)(text[8] - '0'),
                                   .len_bytes = (uint8_t)secret_bytes};
        memcpy(out->bytes, bytes, secret_bytes);
    }
    OPENSSL_cleanse(bytes, sizeof(bytes));
    return fault;
}

struct piece {
    const void *bytes;
    size_t len;
};

static bool hmac_pieces(uint8_t hash, struct piece key, const struct piece *pieces, size_t count,
                        uint8_t out[NVF_HASH_MAX])
{
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)digest_names[hash], 0),
        OSSL_PARAM_construct_end()};
    size_t len = 0;
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *context = mac ? EVP_MAC_CTX_new(mac) : NULL;
    bool fine = context && EVP_MAC_init(context, key.bytes, key.len, params);
    for (size_t i = 0; i < count && fine; i++)
        fine = EVP_MAC_update(context, pieces[i].bytes, pieces[i].len);
    fine = fine && EVP_MAC_final(context, out, &len, NVF_HASH_MAX);
    EVP_MAC_CTX_free(context);
    EVP_MAC_free(mac);
    return fine && len == nvf_hash_bytes(hash);
}

/* The secret bound to its owner's NQN, as the secret's own hash says. */
static bool bind_secret(const struct nvf_secret *secret, const char *nqn, uint8_t out[NVF_HASH_MAX],
                        size_t *len)
{
    static const char salt[] = "NVMe-over-Fabrics";
    if (!secret->hash) {
        memcpy(out, secret->bytes, secret->len_bytes);
        *len = secret->len_bytes;
        return true;
    }
    const struct piece pieces[] = {{nqn, strlen(nqn)}, {salt, sizeof(salt) - 1}};
    *len = nvf_hash_bytes(secret->hash);
    return hmac_pieces(secret->hash, (struct piece){secret->bytes, secret->len_bytes}, pieces, 2,
                       out);
}

/* With a group, the challenge is replaced by its HMAC with the digest of the exchange's secret. */
static bool augment_challenge(const struct nvf_auth_proof *proof, uint8_t out[NVF_HASH_MAX])
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    const struct piece challenge = {proof->challenge, nvf_hash_bytes(proof->hash)};
    if (!proof->dh_secret) {
        memcpy(out, challenge.bytes, challenge.len);
        return true;
    }
    EVP_MD *md = EVP_MD_fetch(NULL, digest_names[proof->hash], NULL);
    const bool fine = md && EVP_Digest(proof->dh_secret, proof->dh_bytes, digest, &len, md, NULL) &&
                      hmac_pieces(proof->hash, (struct piece){digest, len}, &challenge, 1, out);
    EVP_MD_free(md);
    OPENSSL_cleanse(digest, sizeof(digest));
    return fine;
}

bool nvf_auth_respond(const struct nvf_auth_proof *proof, uint8_t response[NVF_HASH_MAX])
{
    const bool is_host = proof->role == NVF_AUTH_HOST;
    const char *own = is_host ? proof->host_nqn : proof->subsystem_nqn;
    const char *peer = is_host ? proof->subsystem_nqn : proof->host_nqn;
    const char *label = is_host ? "HostHost" : "Controller";
    const uint8_t numbers[] = {(uint8_t)proof->sequence,
                               (uint8_t)(proof->sequence >> 8),
                               (uint8_t)(proof->sequence >> 16),
                               (uint8_t)(proof->sequence >> 24),
                               (uint8_t)proof->transaction,
                               (uint8_t)(proof->transaction >> 8),
                               proof->concatenation};
    uint8_t key[NVF_HASH_MAX], challenge[NVF_HASH_MAX];
    size_t key_len = 0;
    const bool fine = nvf_hash_bytes(proof->hash) &&
                      bind_secret(proof->secret, own, key, &key_len) &&
                      augment_challenge(proof, challenge) &&
                      hmac_pieces(proof->hash, (struct piece){key, key_len},
                                  (const struct piece[]){{challenge, nvf_hash_bytes(proof->hash)},
                                                         {numbers, sizeof(numbers)},
                                                         {label, strlen(label)},
                                                         {own, strlen(own) + 1},
                                                         {peer, strlen(peer)}},
                                  5, response);
    OPENSSL_cleanse(key, sizeof(key));
    OPENSSL_cleanse(challenge, sizeof(challenge));
    return fine;
}

struct nvf_dh {
    EVP_PKEY *key;
    uint8_t group;
};

static const char *const group_names[] = {[NVF_FFDHE2048] = "ffdhe2048",
                                          [NVF_FFDHE3072] = "ffdhe3072",
                                          [NVF_FFDHE4096] = "ffdhe4096",
                                          [NVF_FFDHE6144] = "ffdhe6144",
                                          [NVF_FFDHE8192] = "ffdhe8192"};

struct nvf_dh *nvf_dh_new(uint8_t group)
{
    if (nvf_dh_bytes(group) <= 0)
        return NULL;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, (char *)group_names[group], 0),
        OSSL_PARAM_construct_end()};
    struct nvf_dh *dh = calloc(1, sizeof(*dh));
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, "DH", NULL);
    const bool fine = dh && context && EVP_PKEY_keygen_init(context) > 0 &&
                      EVP_PKEY_CTX_set_params(context, params) > 0 &&
                      EVP_PKEY_generate(context, &dh->key) > 0;
    EVP_PKEY_CTX_free(context);
    if (fine) {
        dh->group = group;
        return dh;
    }
    nvf_dh_free(dh);
    return NULL;
}

void nvf_dh_free(struct nvf_dh *dh)
{
    if (!dh)
        return;
    EVP_PKEY_free(dh->key);
    free(dh);
}

bool nvf_dh_public(const struct nvf_dh *dh, uint8_t out[NVF_DH_MAX])
{
    BIGNUM *value = NULL;
    const int len = nvf_dh_bytes(dh->group);
    const bool fine = EVP_PKEY_get_bn_param(dh->key, OSSL_PKEY_PARAM_PUB_KEY, &value) > 0 &&
                      BN_bn2binpad(value, out, len) == len;
    BN_free(value);
    return fine;
}

static EVP_PKEY *import_peer(uint8_t group, const uint8_t *peer, size_t peer_bytes)
{
    EVP_PKEY *key = NULL;
    BIGNUM *value = BN_bin2bn(peer, (int)peer_bytes, NULL);
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, "DH", NULL);
    OSSL_PARAM *params = NULL;
    if (value && build && context &&
        OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, group_names[group], 0) &&
        OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_PUB_KEY, value))
        params = OSSL_PARAM_BLD_to_param(build);
    if (params && EVP_PKEY_fromdata_init(context) > 0 &&
        EVP_PKEY_fromdata(context, &key, EVP_PKEY_PUBLIC_KEY, params) <= 0)
        key = NULL;
    OSSL_PARAM_free(params);
    EVP_PKEY_CTX_free(context);
    OSSL_PARAM_BLD_free(build);
    BN_free(value);
    return key;
}

/* Setting the peer checks its value: 0, 1 and the like would make the secret known to all. */
bool nvf_dh_derive(const struct nvf_dh *dh, const uint8_t *peer, size_t peer_bytes,
                   uint8_t out[NVF_DH_MAX])
{
    size_t len = NVF_DH_MAX;
    const size_t group_bytes = (size_t)nvf_dh_bytes(dh->group);
    if (peer_bytes != group_bytes)
        return false;
    EVP_PKEY *peer_key = import_peer(dh->group, peer, peer_bytes);
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, dh->key, NULL);
    const bool fine = peer_key && context && EVP_PKEY_derive_init(context) > 0 &&
                      EVP_PKEY_CTX_set_dh_pad(context, 1) > 0 &&
                      EVP_PKEY_derive_set_peer(context, peer_key) > 0 &&
                      EVP_PKEY_derive(context, out, &len) > 0 && len == group_bytes;
    EVP_PKEY_CTX_free(context);
    EVP_PKEY_free(peer_key);
    return fine;
}
