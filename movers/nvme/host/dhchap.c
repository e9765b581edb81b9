/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/dhchap.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <string.h>

void nvh_dhchap_init(struct nvh_dhchap *chap, const struct nvh_secrets *secrets,
                     const char *host_nqn, const char *subsystem_nqn, uint16_t transaction)
{
    *chap = (struct nvh_dhchap){.secrets = secrets,
                                .host_nqn = host_nqn,
                                .subsystem_nqn = subsystem_nqn,
                                .transaction = transaction};
}

void nvh_dhchap_clear(struct nvh_dhchap *chap)
{
    OPENSSL_cleanse(chap, sizeof(*chap));
    chap->state = NVH_DHCHAP_FAILED;
}

bool nvh_dhchap_sends(const struct nvh_dhchap *chap)
{
    return chap->state == NVH_DHCHAP_NEGOTIATE || chap->state == NVH_DHCHAP_REPLY ||
           chap->state == NVH_DHCHAP_SUCCESS2 || chap->state == NVH_DHCHAP_FAILURE2;
}

bool nvh_dhchap_has_ended(const struct nvh_dhchap *chap)
{
    return chap->state == NVH_DHCHAP_DONE || chap->state == NVH_DHCHAP_FAILED;
}

static void dhchap_fail_with(struct nvh_dhchap *chap, enum nvf_auth_fault fault)
{
    chap->fault = (uint8_t)fault;
    chap->state = NVH_DHCHAP_FAILURE2;
}

static bool dhchap_make_response(const struct nvh_dhchap *chap, enum nvf_auth_role role,
                                 uint8_t response[NVF_HASH_MAX])
{
    const bool is_host = role == NVF_AUTH_HOST;
    const struct nvf_auth_proof proof = {
        .role = role,
        .hash = chap->hash,
        .secret = is_host ? &chap->secrets->host : &chap->secrets->controller,
        .challenge = is_host ? chap->challenge : chap->own_challenge,
        .dh_secret = chap->group ? chap->dh_secret : NULL,
        .dh_bytes = (size_t)nvf_dh_bytes(chap->group),
        .sequence = is_host ? chap->sequence : chap->own_sequence,
        .transaction = chap->transaction,
        .host_nqn = chap->host_nqn,
        .subsystem_nqn = chap->subsystem_nqn,
    };
    return nvf_auth_respond(&proof, response);
}

static size_t send_negotiate(struct nvh_dhchap *chap, uint8_t out[NVF_AUTH_MESSAGE_MAX])
{
    const struct nvf_auth_message m = {
        .id = NVF_AUTH_NEGOTIATE,
        .transaction = chap->transaction,
        .offers_dhchap = true,
        .hash_count = 3,
        .hashes = {NVF_SHA256, NVF_SHA384, NVF_SHA512},
        .group_count = 6,
        .groups = {NVF_DH_NULL, NVF_FFDHE2048, NVF_FFDHE3072, NVF_FFDHE4096, NVF_FFDHE6144,
                   NVF_FFDHE8192},
    };
    chap->state = NVH_DHCHAP_CHALLENGE;
    return nvf_auth_encode(&m, out);
}

static size_t send_failure(struct nvh_dhchap *chap, uint8_t out[NVF_AUTH_MESSAGE_MAX])
{
    const struct nvf_auth_message m = {.id = NVF_AUTH_FAILURE2,
                                       .transaction = chap->transaction,
                                       .reason = NVF_AUTH_REASON_FAILED,
                                       .explanation = chap->fault};
    chap->state = NVH_DHCHAP_FAILED;
    return nvf_auth_encode(&m, out);
}

static bool make_own_challenge(struct nvh_dhchap *chap)
{
    uint8_t number[4];
    if (RAND_bytes(chap->own_challenge, nvf_hash_bytes(chap->hash)) != 1 ||
        RAND_bytes(number, sizeof(number)) != 1)
        return false;
    memcpy(&chap->own_sequence, number, sizeof(number));
    chap->own_sequence += !chap->own_sequence; /* 0 is no number */
    return true;
}

static size_t dhchap_send_reply(struct nvh_dhchap *chap, uint8_t out[NVF_AUTH_MESSAGE_MAX])
{
    struct nvf_auth_message m = {.id = NVF_AUTH_REPLY,
                                 .transaction = chap->transaction,
                                 .hash_bytes = nvf_hash_bytes(chap->hash),
                                 .dh_bytes = (uint16_t)nvf_dh_bytes(chap->group),
                                 .is_valid = chap->secrets->has_controller};
    if (!dhchap_make_response(chap, NVF_AUTH_HOST, m.response) ||
        (m.is_valid && !make_own_challenge(chap))) {
        dhchap_fail_with(chap, NVF_AUTH_FAILED);
        return send_failure(chap, out);
    }
    m.sequence = chap->own_sequence;
    memcpy(m.challenge, chap->own_challenge, m.hash_bytes);
    memcpy(m.dh, chap->dh_public, m.dh_bytes);
    chap->state = NVH_DHCHAP_SUCCESS1;
    return nvf_auth_encode(&m, out);
}

size_t nvh_dhchap_next(struct nvh_dhchap *chap, uint8_t out[NVF_AUTH_MESSAGE_MAX])
{
    if (chap->state == NVH_DHCHAP_NEGOTIATE)
        return send_negotiate(chap, out);
    if (chap->state == NVH_DHCHAP_REPLY)
        return dhchap_send_reply(chap, out);
    if (chap->state == NVH_DHCHAP_SUCCESS2) {
        const struct nvf_auth_message m = {.id = NVF_AUTH_SUCCESS2,
                                           .transaction = chap->transaction};
        chap->state = NVH_DHCHAP_DONE;
        return nvf_auth_encode(&m, out);
    }
    return send_failure(chap, out);
}

/* ---- what the controller says ---- */

static bool exchange_keys(struct nvh_dhchap *chap, const struct nvf_auth_message *m)
{
    if (!chap->group)
        return true;
    struct nvf_dh *dh = nvf_dh_new(chap->group);
    const bool done = dh && nvf_dh_public(dh, chap->dh_public) &&
                      nvf_dh_derive(dh, m->dh, m->dh_bytes, chap->dh_secret);
    nvf_dh_free(dh);
    return done;
}

static void take_challenge(struct nvh_dhchap *chap, const struct nvf_auth_message *m)
{
    const int dh_bytes = nvf_dh_bytes(m->group);
    if (!nvf_hash_bytes(m->hash))
        return dhchap_fail_with(chap, NVF_AUTH_HASH_NOT_USABLE);
    if (dh_bytes < 0)
        return dhchap_fail_with(chap, NVF_AUTH_GROUP_NOT_USABLE);
    if (m->hash_bytes != nvf_hash_bytes(m->hash) || m->dh_bytes != dh_bytes || !m->sequence)
        return dhchap_fail_with(chap, NVF_AUTH_INCORRECT_PAYLOAD);
    chap->hash = m->hash;
    chap->group = m->group;
    chap->sequence = m->sequence;
    memcpy(chap->challenge, m->challenge, sizeof(chap->challenge));
    if (!exchange_keys(chap, m))
        return dhchap_fail_with(chap, NVF_AUTH_INCORRECT_PAYLOAD);
    chap->state = NVH_DHCHAP_REPLY;
}

static void take_success1(struct nvh_dhchap *chap, const struct nvf_auth_message *m)
{
    uint8_t expected[NVF_HASH_MAX];
    const uint8_t hash_bytes = nvf_hash_bytes(chap->hash);
    if (!chap->secrets->has_controller) {
        chap->state = NVH_DHCHAP_DONE;
        return;
    }
    const bool same = m->is_valid && m->hash_bytes == hash_bytes &&
                      dhchap_make_response(chap, NVF_AUTH_CONTROLLER, expected) &&
                      CRYPTO_memcmp(expected, m->response, hash_bytes) == 0;
    OPENSSL_cleanse(expected, sizeof(expected));
    chap->is_proof_false = !same;
    if (same)
        chap->state = NVH_DHCHAP_SUCCESS2;
    else
        dhchap_fail_with(chap, NVF_AUTH_FAILED);
}

void nvh_dhchap_take(struct nvh_dhchap *chap, const uint8_t *data, size_t len)
{
    struct nvf_auth_message m;
    if (!nvf_auth_decode(data, len, &m) || m.transaction != chap->transaction)
        return dhchap_fail_with(chap, NVF_AUTH_INCORRECT_PAYLOAD);
    if (m.id == NVF_AUTH_FAILURE1) {
        chap->fault = m.explanation;
        chap->is_their_word = true;
        chap->state = NVH_DHCHAP_FAILED;
    } else if (m.id == NVF_AUTH_CHALLENGE && chap->state == NVH_DHCHAP_CHALLENGE) {
        take_challenge(chap, &m);
    } else if (m.id == NVF_AUTH_SUCCESS1 && chap->state == NVH_DHCHAP_SUCCESS1) {
        take_success1(chap, &m);
    } else {
        dhchap_fail_with(chap, NVF_AUTH_INCORRECT_MESSAGE);
    }
}
