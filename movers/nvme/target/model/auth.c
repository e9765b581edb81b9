/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/auth.h"

#include <assert.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/rand.h>

static const uint16_t auth_required =
    NVME_SCT_CMD_SPECIFIC << NVME_SCT_SHIFT | NVME_SC_AUTH_REQUIRED | NVME_SC_DNR;

static bool random_of_libcrypto(uint8_t *out, size_t len)
{
    return RAND_bytes(out, (int)len) == 1;
}

const char *nvt_auth_policy_parse(const char *host_secret, const char *controller_secret,
                                  uint8_t hash, uint8_t group, struct nvt_auth_policy *out)
{
    *out = (struct nvt_auth_policy){.hash = hash, .group = group};
    const char *wrong = nvf_secret_parse(host_secret, &out->host_secret);
    if (wrong || !controller_secret || !*controller_secret)
        return wrong;
    out->has_controller_secret = true;
    return nvf_secret_parse(controller_secret, &out->controller_secret);
}

void nvt_auth_init(struct nvt_auth *auth, const struct nvt_auth_policy *policy,
                   bool (*random)(uint8_t *out, size_t len))
{
    *auth = (struct nvt_auth){.policy = policy, .random = random ? random : random_of_libcrypto};
}

/* Forgets one transaction; whether the host is authenticated is kept. */
static void forget_transaction(struct nvt_auth *auth)
{
    nvf_dh_free(auth->dh);
    auth->dh = NULL;
    auth->proves = false;
    OPENSSL_cleanse(auth->challenge, sizeof(auth->challenge));
    OPENSSL_cleanse(auth->host_challenge, sizeof(auth->host_challenge));
    OPENSSL_cleanse(auth->dh_secret, sizeof(auth->dh_secret));
}

void nvt_auth_clear(struct nvt_auth *auth)
{
    forget_transaction(auth);
    auth->authenticated = false;
    auth->state = NVT_AUTH_FAILED;
}

static void auth_fail_with(struct nvt_auth *auth, enum nvf_auth_fault fault)
{
    forget_transaction(auth);
    auth->authenticated = false;
    auth->fault = (uint8_t)fault;
    auth->state = NVT_AUTH_FAILURE1;
}

/* The policy's own if it is offered, else the weakest above it: what a host cannot do better than
 * the policy wants, it is not let down to. */
static bool choose_offer(const uint8_t *offers, size_t count, uint8_t least, uint8_t most,
                         uint8_t *chosen)
{
    bool found = false;
    for (size_t i = 0; i < count; i++)
        if (offers[i] >= least && offers[i] <= most && (!found || offers[i] < *chosen)) {
            *chosen = offers[i];
            found = true;
        }
    return found;
}

static void take_negotiate(struct nvt_auth *auth, const struct nvf_auth_message *m)
{
    const struct nvt_auth_policy *policy = auth->policy;
    const uint8_t least_hash = policy->hash ? policy->hash : NVF_SHA256;
    forget_transaction(auth);
    auth->transaction = m->transaction;
    if (m->concatenation)
        auth_fail_with(auth, NVF_AUTH_CONCAT_MISMATCH);
    else if (!m->offers_dhchap)
        auth_fail_with(auth, NVF_AUTH_NOT_USABLE);
    else if (!choose_offer(m->hashes, m->hash_count, least_hash, NVF_SHA512, &auth->hash))
        auth_fail_with(auth, NVF_AUTH_HASH_NOT_USABLE);
    else if (!choose_offer(m->groups, m->group_count, policy->group, NVF_FFDHE8192, &auth->group))
        auth_fail_with(auth, NVF_AUTH_GROUP_NOT_USABLE);
    else
        auth->state = NVT_AUTH_CHALLENGE;
}

static bool auth_make_response(const struct nvt_auth *auth, enum nvf_auth_role role,
                               uint8_t response[NVF_HASH_MAX])
{
    const struct nvt_auth_policy *policy = auth->policy;
    const bool is_host = role == NVF_AUTH_HOST;
    const struct nvf_auth_proof proof = {
        .role = role,
        .hash = auth->hash,
        .secret = is_host ? &policy->host_secret : &policy->controller_secret,
        .challenge = is_host ? auth->challenge : auth->host_challenge,
        .dh_secret = auth->group ? auth->dh_secret : NULL,
        .dh_bytes = (size_t)nvf_dh_bytes(auth->group),
        .sequence = is_host ? auth->sequence : auth->host_sequence,
        .transaction = auth->transaction,
        .host_nqn = policy->host_nqn,
        .subsystem_nqn = policy->subsystem_nqn,
    };
    return nvf_auth_respond(&proof, response);
}

static void auth_take_reply(struct nvt_auth *auth, const struct nvf_auth_message *m)
{
    uint8_t expected[NVF_HASH_MAX];
    const uint8_t hash_bytes = nvf_hash_bytes(auth->hash);
    if (m->hash_bytes != hash_bytes || m->dh_bytes != nvf_dh_bytes(auth->group)) {
        auth_fail_with(auth, NVF_AUTH_INCORRECT_PAYLOAD);
        return;
    }
    /* A host that sends our own challenge back would have us answer it. */
    if (m->is_valid && CRYPTO_memcmp(m->challenge, auth->challenge, hash_bytes) == 0) {
        auth_fail_with(auth, NVF_AUTH_FAILED);
        return;
    }
    if (auth->group && !nvf_dh_derive(auth->dh, m->dh, m->dh_bytes, auth->dh_secret)) {
        auth_fail_with(auth, NVF_AUTH_INCORRECT_PAYLOAD);
        return;
    }
    const bool same = auth_make_response(auth, NVF_AUTH_HOST, expected) &&
                      CRYPTO_memcmp(expected, m->response, hash_bytes) == 0;
    OPENSSL_cleanse(expected, sizeof(expected));
    if (!same || (m->is_valid && !auth->policy->has_controller_secret)) {
        auth_fail_with(auth, NVF_AUTH_FAILED);
        return;
    }
    auth->proves = m->is_valid;
    auth->host_sequence = m->sequence;
    memcpy(auth->host_challenge, m->challenge, sizeof(auth->host_challenge));
    auth->state = NVT_AUTH_SUCCESS1;
}

static void finish_auth(struct nvt_auth *auth)
{
    forget_transaction(auth);
    auth->authenticated = true;
    auth->state = NVT_AUTH_DONE;
}

static void auth_take_message(struct nvt_auth *auth, const struct nvf_auth_message *m)
{
    const bool same = m->transaction == auth->transaction;
    if (auth->state == NVT_AUTH_FAILURE1) {
        /* The reason stays what it was. */
    } else if (m->id == NVF_AUTH_NEGOTIATE) {
        take_negotiate(auth, m);
    } else if (m->id == NVF_AUTH_REPLY && auth->state == NVT_AUTH_REPLY) {
        if (same)
            auth_take_reply(auth, m);
        else
            auth_fail_with(auth, NVF_AUTH_INCORRECT_PAYLOAD);
    } else if (m->id == NVF_AUTH_SUCCESS2 && auth->state == NVT_AUTH_SUCCESS2 && same) {
        finish_auth(auth);
    } else if (m->id == NVF_AUTH_SUCCESS2 && auth->state == NVT_AUTH_DONE && same) {
        /* Linux sends it with a group even if it has asked for no proof. */
    } else if (m->id == NVF_AUTH_FAILURE2) {
        auth_fail_with(auth, NVF_AUTH_FAILED);
        auth->fault = m->explanation;
        auth->state = NVT_AUTH_FAILED;
    } else {
        auth_fail_with(auth, NVF_AUTH_INCORRECT_MESSAGE);
    }
}

uint16_t nvt_auth_send(struct nvt_auth *auth, const uint8_t *data, size_t len)
{
    struct nvf_auth_message m;
    if (auth->state == NVT_AUTH_FAILED)
        return auth_required;
    if (nvf_auth_decode(data, len, &m))
        auth_take_message(auth, &m);
    else if (auth->state != NVT_AUTH_FAILURE1)
        auth_fail_with(auth, NVF_AUTH_INCORRECT_PAYLOAD);
    return 0;
}

/* False: libcrypto would not. */
static bool make_challenge(struct nvt_auth *auth, struct nvf_auth_message *m)
{
    uint8_t sequence[4];
    m->id = NVF_AUTH_CHALLENGE;
    m->hash = auth->hash;
    m->group = auth->group;
    m->hash_bytes = nvf_hash_bytes(auth->hash);
    m->dh_bytes = (uint16_t)nvf_dh_bytes(auth->group);
    if (!auth->random(auth->challenge, m->hash_bytes) || !auth->random(sequence, sizeof(sequence)))
        return false;
    memcpy(&auth->sequence, sequence, sizeof(sequence));
    auth->sequence += !auth->sequence; /* 0 is no number */
    m->sequence = auth->sequence;
    memcpy(m->challenge, auth->challenge, m->hash_bytes);
    if (!auth->group)
        return true;
    auth->dh = nvf_dh_new(auth->group);
    return auth->dh && nvf_dh_public(auth->dh, m->dh);
}

static bool make_success1(struct nvt_auth *auth, struct nvf_auth_message *m)
{
    m->id = NVF_AUTH_SUCCESS1;
    m->hash_bytes = nvf_hash_bytes(auth->hash);
    m->is_valid = auth->proves;
    return !auth->proves || auth_make_response(auth, NVF_AUTH_CONTROLLER, m->response);
}

static void make_failure1(const struct nvt_auth *auth, struct nvf_auth_message *m)
{
    *m = (struct nvf_auth_message){.id = NVF_AUTH_FAILURE1,
                                   .transaction = auth->transaction,
                                   .reason = NVF_AUTH_REASON_FAILED,
                                   .explanation = auth->fault};
}

/* What the host gets, as it has room for it. */
static size_t length_of_next(const struct nvt_auth *auth)
{
    if (auth->state == NVT_AUTH_CHALLENGE)
        return 16u + nvf_hash_bytes(auth->hash) + (size_t)nvf_dh_bytes(auth->group);
    if (auth->state == NVT_AUTH_SUCCESS1)
        return 16u + (auth->proves ? nvf_hash_bytes(auth->hash) : 0u);
    return 8;
}

uint16_t nvt_auth_receive(struct nvt_auth *auth, size_t room, uint8_t out[NVF_AUTH_MESSAGE_MAX],
                          size_t *len)
{
    struct nvf_auth_message m = {.transaction = auth->transaction};
    if (auth->state == NVT_AUTH_FAILED)
        return auth_required;
    if (room < length_of_next(auth))
        return NVME_SC_INVALID_FIELD | NVME_SC_DNR;
    if (auth->state == NVT_AUTH_CHALLENGE) {
        if (make_challenge(auth, &m))
            auth->state = NVT_AUTH_REPLY;
        else
            auth_fail_with(auth, NVF_AUTH_FAILED);
    } else if (auth->state == NVT_AUTH_SUCCESS1) {
        if (!make_success1(auth, &m))
            auth_fail_with(auth, NVF_AUTH_FAILED);
        else if (auth->proves)
            auth->state = NVT_AUTH_SUCCESS2;
        else
            finish_auth(auth);
    } else if (auth->state != NVT_AUTH_FAILURE1) {
        auth_fail_with(auth, NVF_AUTH_INCORRECT_MESSAGE);
    }
    if (auth->state == NVT_AUTH_FAILURE1) {
        make_failure1(auth, &m);
        auth->state = NVT_AUTH_FAILED;
    }
    *len = nvf_auth_encode(&m, out);
    assert(*len <= room);
    return 0;
}
