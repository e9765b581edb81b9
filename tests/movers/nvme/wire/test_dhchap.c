/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/wire/dhchap.h"
#include "nvme/wire/dhchap_crypto.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Secrets of bytes seed, seed + 7, ...: made with Python's base64 and zlib. */
static const char *const secrets[] = {
    "DHHC-1:00:AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09pl1OOC:",
    "DHHC-1:01:AgkQFx4lLDM6QUhPVl1ka3J5gIeOlZyjqrG4v8bN1Nuz7TWq:",
    "DHHC-1:02:AwoRGB8mLTQ7QklQV15lbHN6gYiPlp2kq7K5wMfO1dzj6vH4/wYNFBsiKTA3PkVMRdxyRQ==:",
    ("DHHC-1:03:BAsSGSAnLjU8Q0pRWF9mbXR7gomQl56lrLO6wcjP1t3k6/L5AAcOFRwjKjE4P0ZNVFtiaXB3foWMk5qhqK"
     "+2vVR3QN4=:"),
};

static void secret_parse__forms(void **state)
{
    (void)state;
    static const uint8_t lengths[] = {32, 32, 48, 64};
    struct nvf_secret secret;
    for (uint8_t i = 0; i < 4; i++) {
        assert_null(nvf_secret_parse(secrets[i], &secret));
        assert_int_equal(secret.hash, i);
        assert_int_equal(secret.len_bytes, lengths[i]);
        for (uint8_t j = 0; j < secret.len_bytes; j++)
            assert_int_equal(secret.bytes[j], (uint8_t)(i + 1 + j * 7));
    }
    /* The example in nvme-gen-dhchap-key(1)'s family of pages. */
    assert_null(
        nvf_secret_parse("DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:", &secret));
}

static void secret_parse__faults(void **state)
{
    (void)state;
    static const char *const faults[][2] = {
        {"", "form"},
        {"DHHC-1:04:AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09pl1OOC:", "form"},
        {"DHHC-1:0", "form"},
        {"DHHC-1:00", "form"},
        {"DHHC-1:00:", "colon"},
        {"DHHC-1:00:AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09pl1OOC", "colon"},
        {"DHHC-1:00:AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09pl1OOC::", "colon"},
        {"DHHC-1:00::", "32, 48 or 64"},
        {"DHHC-1:00:AQgPFh0k:", "32, 48 or 64"},
        {"DHHC-1:00:AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09pl1OO:", "32, 48 or 64"},
        {"DHHC-1:00:AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09pl1O*C:", "32, 48 or 64"},
        {"DHHC-1:02:AwoRGB8mLTQ7QklQV15lbHN6gYiPlp2kq7K5wMfO1dzj6vH4/wYNFBsiKTA3PkVMRdxyRR==:",
         "32, 48 or 64"}, /* bits left over */
        {"DHHC-1:00:BQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09pl1OOC:", "checksum"},
    };
    struct nvf_secret secret;
    char text[2048];
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        const char *why = nvf_secret_parse(faults[i][0], &secret);
        if (!why || !strstr(why, faults[i][1]))
            fail_msg("%s: %s", faults[i][0], why);
    }
    memset(text, 'A', sizeof(text));
    memcpy(text, "DHHC-1:00:", 10);
    strcpy(text + sizeof(text) - 2, ":");
    assert_non_null(nvf_secret_parse(text, &secret));
}

static void expect_hex(const uint8_t *bytes, size_t len, const char *hex)
{
    assert_int_equal(strlen(hex), 2 * len);
    for (size_t i = 0; i < len; i++) {
        unsigned value;
        sscanf(hex + 2 * i, "%2x", &value);
        assert_int_equal(bytes[i], value);
    }
}

/* Made with Python's hmac and hashlib, out of the formula in Base 2.0 s8.13.5.4 and .5. */
static void auth_respond__vectors(void **state)
{
    (void)state;
    static const struct {
        uint8_t hash, secret;
        size_t dh_bytes;
        enum nvf_auth_role role;
        const char *response;
    } vectors[] = {
        {1, 0, 0, NVF_AUTH_HOST,
         "8c0f067f961b8ded6bf0afd26a6e665b0ac9d838c9bb61f48722cb9fc2fd9a67"},
        {1, 1, 0, NVF_AUTH_CONTROLLER,
         "1cdd441e11c22d691951cd316498afc3bee832b8278bfd54b5b8834ebb07d508"},
        {2, 2, 256, NVF_AUTH_HOST,
         "5ab80092a125f3d42cd4a47ee1b8740fdc32a9f780c60be2d1dd01a0f96b14e9"
         "7c7df6ce1772a9ee07de9a92fd5f361f"},
        {3, 3, 1024, NVF_AUTH_CONTROLLER,
         "f474e3ec95d591ea8bf0579c134dabc8a07042775b68e7874652cb21ee3fecaf"
         "c8e3ceb83db410f806bac9c3b931d1ea7eb67298c96a4431aa1876016c865ba6"},
        {3, 1, 384, NVF_AUTH_HOST,
         "d7b9552bce325afa1dca49fe609fe50ba7e6b33528d8053f618a3c511bdbe56b"
         "f65540f469320ef7d9aded9cc7ac3aeaf63e62ea96f07a44ec0eb1f87e586e8c"},
    };
    for (size_t i = 0; i < sizeof(vectors) / sizeof(*vectors); i++) {
        uint8_t challenge[NVF_HASH_MAX], dh[NVF_DH_MAX], response[NVF_HASH_MAX];
        struct nvf_secret secret;
        for (size_t j = 0; j < sizeof(challenge); j++)
            challenge[j] = (uint8_t)(j * 3 + vectors[i].hash);
        for (size_t j = 0; j < sizeof(dh); j++)
            dh[j] = (uint8_t)(j * 5 + 1);
        assert_null(nvf_secret_parse(secrets[vectors[i].secret], &secret));
        const struct nvf_auth_proof proof = {
            .role = vectors[i].role,
            .hash = vectors[i].hash,
            .secret = &secret,
            .challenge = challenge,
            .dh_secret = vectors[i].dh_bytes ? dh : NULL,
            .dh_bytes = vectors[i].dh_bytes,
            .sequence = 0x01020304,
            .transaction = 0xabcd,
            .host_nqn = "nqn.host",
            .subsystem_nqn = "nqn.subsystem",
        };
        assert_true(nvf_auth_respond(&proof, response));
        expect_hex(response, nvf_hash_bytes(vectors[i].hash), vectors[i].response);
    }
}

static void dh__both_sides_agree(void **state)
{
    (void)state;
    static uint8_t ours[NVF_DH_MAX], theirs[NVF_DH_MAX], one[NVF_DH_MAX], other[NVF_DH_MAX];
    for (uint8_t group = NVF_FFDHE2048; group <= NVF_FFDHE8192; group++) {
        const size_t len = (size_t)nvf_dh_bytes(group);
        struct nvf_dh *a = nvf_dh_new(group), *b = nvf_dh_new(group);
        assert_true(a && b);
        assert_true(nvf_dh_public(a, ours) && nvf_dh_public(b, theirs));
        assert_memory_not_equal(ours, theirs, len);
        assert_true(nvf_dh_derive(a, theirs, len, one) && nvf_dh_derive(b, ours, len, other));
        assert_memory_equal(one, other, len);
        nvf_dh_free(a);
        nvf_dh_free(b);
    }
    assert_null(nvf_dh_new(NVF_DH_NULL));
    assert_null(nvf_dh_new(6));
    nvf_dh_free(NULL);
}

static void dh__refuses_bad_values(void **state)
{
    (void)state;
    static uint8_t peer[NVF_DH_MAX], out[NVF_DH_MAX];
    struct nvf_dh *dh = nvf_dh_new(NVF_FFDHE2048);
    assert_false(nvf_dh_derive(dh, peer, 256, out)); /* 0 */
    peer[255] = 1;
    assert_false(nvf_dh_derive(dh, peer, 256, out));
    memset(peer, 0xff, sizeof(peer)); /* at least the prime */
    assert_false(nvf_dh_derive(dh, peer, 256, out));
    memset(peer, 0x55, sizeof(peer));
    assert_false(nvf_dh_derive(dh, peer, 255, out));
    assert_false(nvf_dh_derive(dh, peer, 0, out));
    nvf_dh_free(dh);
}

static void expect_again(const struct nvf_auth_message *m, size_t want_len)
{
    static uint8_t bytes[NVF_AUTH_MESSAGE_MAX];
    struct nvf_auth_message again;
    const size_t len = nvf_auth_encode(m, bytes);
    assert_int_equal(len, want_len);
    assert_true(nvf_auth_decode(bytes, len, &again));
    assert_memory_equal(m, &again, sizeof(again));
    for (size_t cut = 0; cut < len; cut++)
        assert_false(nvf_auth_decode(bytes, cut, &again));
}

static void decode__what_encode_makes(void **state)
{
    (void)state;
    expect_again(&(struct nvf_auth_message){.id = NVF_AUTH_NEGOTIATE,
                                            .transaction = 0x1234,
                                            .offers_dhchap = true,
                                            .hash_count = 3,
                                            .hashes = {1, 2, 3},
                                            .group_count = 2,
                                            .groups = {0, 5}},
                 72);
    static struct nvf_auth_message challenge = {.id = NVF_AUTH_CHALLENGE,
                                                .transaction = 7,
                                                .hash = NVF_SHA384,
                                                .group = NVF_FFDHE8192,
                                                .hash_bytes = 48,
                                                .dh_bytes = 1024,
                                                .sequence = 0x12345678};
    memset(challenge.challenge, 0x5a, 48);
    memset(challenge.dh, 0xa5, 1024);
    expect_again(&challenge, 16 + 48 + 1024);
    struct nvf_auth_message reply = {
        .id = NVF_AUTH_REPLY, .hash_bytes = 64, .is_valid = true, .dh_bytes = 1024, .sequence = 1};
    memset(reply.response, 1, 64);
    memset(reply.challenge, 2, 64);
    memset(reply.dh, 3, 1024);
    expect_again(&reply, NVF_AUTH_MESSAGE_MAX);
    static struct nvf_auth_message success = {
        .id = NVF_AUTH_SUCCESS1, .hash_bytes = 32, .is_valid = true};
    memset(success.response, 4, 32);
    expect_again(&success, 48);
    expect_again(&(struct nvf_auth_message){.id = NVF_AUTH_SUCCESS1, .hash_bytes = 32}, 16);
    expect_again(&(struct nvf_auth_message){.id = NVF_AUTH_SUCCESS2, .transaction = 9}, 16);
    expect_again(&(struct nvf_auth_message){.id = NVF_AUTH_FAILURE1, .reason = 1, .explanation = 7},
                 8);
    expect_again(&(struct nvf_auth_message){.id = NVF_AUTH_FAILURE2, .reason = 1, .explanation = 4},
                 8);
}

/* By hand, as Linux sends it. */
static void decode__negotiate_bytes(void **state)
{
    (void)state;
    static const uint8_t bytes[72] = {0, 0, 0, 0, 0x34,         0x12, 0, 1, /* */ 1, 0, 3,
                                      6, 1, 2, 3, [8 + 34] = 0, 1,    2, 3, 4,       5};
    struct nvf_auth_message m;
    assert_true(nvf_auth_decode(bytes, sizeof(bytes), &m));
    assert_int_equal(m.id, NVF_AUTH_NEGOTIATE);
    assert_int_equal(m.transaction, 0x1234);
    assert_true(m.offers_dhchap);
    assert_int_equal(m.hash_count, 3);
    assert_int_equal(m.hashes[2], 3);
    assert_int_equal(m.group_count, 6);
    assert_int_equal(m.groups[5], 5);
}

static void decode__faults(void **state)
{
    (void)state;
    uint8_t bytes[NVF_AUTH_MESSAGE_MAX] = {1, 5};
    struct nvf_auth_message m;
    assert_false(nvf_auth_decode(bytes, sizeof(bytes), &m)); /* no such message */
    bytes[0] = 2;
    bytes[1] = NVF_AUTH_REPLY;
    assert_false(nvf_auth_decode(bytes, sizeof(bytes), &m)); /* no such type */
    bytes[0] = 1;
    bytes[6] = 33; /* no length of a hash */
    assert_false(nvf_auth_decode(bytes, sizeof(bytes), &m));
    bytes[6] = 32;
    bytes[10] = 1, bytes[11] = 4; /* 1025 bytes */
    assert_false(nvf_auth_decode(bytes, sizeof(bytes), &m));
    uint8_t negotiate[72] = {0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 31};
    assert_false(nvf_auth_decode(negotiate, sizeof(negotiate), &m));
    negotiate[8] = 2; /* a protocol that is not known */
    assert_true(nvf_auth_decode(negotiate, sizeof(negotiate), &m));
    assert_false(m.offers_dhchap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secret_parse__forms),     cmocka_unit_test(secret_parse__faults),
        cmocka_unit_test(auth_respond__vectors),   cmocka_unit_test(dh__both_sides_agree),
        cmocka_unit_test(dh__refuses_bad_values),  cmocka_unit_test(decode__what_encode_makes),
        cmocka_unit_test(decode__negotiate_bytes), cmocka_unit_test(decode__faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
