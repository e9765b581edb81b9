/* SPDX-License-Identifier: BSD-2-Clause */
/* The controller's machine against a host played here, of the same codec. */
#include "nvme/target/model/auth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../secrets.h"

enum { TRANSACTION = 77, SEQUENCE = 5 };
enum { AUTH_REQUIRED = 0x191 | NVME_SC_DNR };

static struct nvt_auth auth;
static struct nvt_auth_policy policy;

static int set_up(void **state)
{
    (void)state;
    policy = (struct nvt_auth_policy){.host_nqn = "nqn.h", .subsystem_nqn = "nqn.s", .hash = 1};
    assert_null(nvf_secret_parse(HOST_SECRET, &policy.host_secret));
    assert_null(nvf_secret_parse(CONTROLLER_SECRET, &policy.controller_secret));
    policy.has_controller_secret = true;
    nvt_auth_init(&auth, &policy, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    nvt_auth_clear(&auth);
    return 0;
}

static void send_message(const struct nvf_auth_message *m)
{
    uint8_t bytes[NVF_AUTH_MESSAGE_MAX];
    assert_int_equal(nvt_auth_send(&auth, bytes, nvf_auth_encode(m, bytes)), 0);
}

static struct nvf_auth_message receive(enum nvf_auth_id id)
{
    uint8_t bytes[NVF_AUTH_MESSAGE_MAX];
    struct nvf_auth_message m;
    size_t len = 0;
    assert_int_equal(nvt_auth_receive(&auth, 4096, bytes, &len), 0);
    assert_true(nvf_auth_decode(bytes, len, &m));
    assert_int_equal(m.id, id);
    return m;
}

static void expect_failure(enum nvf_auth_fault fault)
{
    uint8_t bytes[NVF_AUTH_MESSAGE_MAX];
    size_t len;
    assert_false(auth.authenticated);
    const struct nvf_auth_message m = receive(NVF_AUTH_FAILURE1);
    assert_int_equal(m.reason, NVF_AUTH_REASON_FAILED);
    assert_int_equal(m.explanation, fault);
    assert_int_equal(auth.state, NVT_AUTH_FAILED);
    assert_int_equal(nvt_auth_receive(&auth, 4096, bytes, &len), AUTH_REQUIRED);
    assert_int_equal(nvt_auth_send(&auth, bytes, 0), AUTH_REQUIRED);
}

static struct nvf_auth_message negotiation(void)
{
    return (struct nvf_auth_message){.id = NVF_AUTH_NEGOTIATE,
                                     .transaction = TRANSACTION,
                                     .offers_dhchap = true,
                                     .hash_count = 3,
                                     .hashes = {1, 2, 3},
                                     .group_count = 6,
                                     .groups = {0, 1, 2, 3, 4, 5}};
}

/* What a host that knows the secrets answers; `dh` is its side of the exchange. */
static struct nvf_auth_message answer(const struct nvf_auth_message *challenge, bool wants_proof,
                                      uint8_t dh_secret[NVF_DH_MAX])
{
    struct nvf_auth_message reply = {.id = NVF_AUTH_REPLY,
                                     .transaction = challenge->transaction,
                                     .hash_bytes = challenge->hash_bytes,
                                     .dh_bytes = challenge->dh_bytes,
                                     .is_valid = wants_proof};
    if (challenge->dh_bytes) {
        struct nvf_dh *dh = nvf_dh_new(challenge->group);
        assert_true(nvf_dh_public(dh, reply.dh));
        assert_true(nvf_dh_derive(dh, challenge->dh, challenge->dh_bytes, dh_secret));
        nvf_dh_free(dh);
    }
    const struct nvf_auth_proof proof = {.role = NVF_AUTH_HOST,
                                         .hash = challenge->hash,
                                         .secret = &policy.host_secret,
                                         .challenge = challenge->challenge,
                                         .dh_secret = challenge->dh_bytes ? dh_secret : NULL,
                                         .dh_bytes = challenge->dh_bytes,
                                         .sequence = challenge->sequence,
                                         .transaction = challenge->transaction,
                                         .host_nqn = "nqn.h",
                                         .subsystem_nqn = "nqn.s"};
    assert_true(nvf_auth_respond(&proof, reply.response));
    if (wants_proof) {
        reply.sequence = SEQUENCE;
        memset(reply.challenge, 0x33, reply.hash_bytes);
    }
    return reply;
}

static void check_proof(const struct nvf_auth_message *challenge,
                        const struct nvf_auth_message *reply,
                        const struct nvf_auth_message *success, const uint8_t *dh_secret)
{
    uint8_t expected[NVF_HASH_MAX];
    const struct nvf_auth_proof proof = {.role = NVF_AUTH_CONTROLLER,
                                         .hash = challenge->hash,
                                         .secret = &policy.controller_secret,
                                         .challenge = reply->challenge,
                                         .dh_secret = challenge->dh_bytes ? dh_secret : NULL,
                                         .dh_bytes = challenge->dh_bytes,
                                         .sequence = SEQUENCE,
                                         .transaction = TRANSACTION,
                                         .host_nqn = "nqn.h",
                                         .subsystem_nqn = "nqn.s"};
    assert_true(success->is_valid);
    assert_true(nvf_auth_respond(&proof, expected));
    assert_memory_equal(expected, success->response, success->hash_bytes);
}

static void auth__each_hash_and_group(void **state)
{
    static uint8_t dh_secret[NVF_DH_MAX];
    for (uint8_t hash = NVF_SHA256; hash <= NVF_SHA512; hash++)
        for (uint8_t group = NVF_DH_NULL; group <= NVF_FFDHE8192; group++)
            for (int wants_proof = 0; wants_proof < 2; wants_proof++) {
                set_up(state);
                policy.hash = hash;
                policy.group = group;
                const struct nvf_auth_message offer = negotiation();
                send_message(&offer);
                const struct nvf_auth_message challenge = receive(NVF_AUTH_CHALLENGE);
                assert_int_equal(challenge.hash, hash);
                assert_int_equal(challenge.group, group);
                assert_int_equal(challenge.transaction, TRANSACTION);
                assert_true(challenge.sequence);
                const struct nvf_auth_message reply = answer(&challenge, wants_proof, dh_secret);
                send_message(&reply);
                assert_false(auth.authenticated);
                const struct nvf_auth_message success = receive(NVF_AUTH_SUCCESS1);
                assert_int_equal(auth.authenticated, !wants_proof);
                if (wants_proof)
                    check_proof(&challenge, &reply, &success, dh_secret);
                send_message(&(struct nvf_auth_message){.id = NVF_AUTH_SUCCESS2,
                                                        .transaction = TRANSACTION});
                assert_true(auth.authenticated && nvt_auth_is_at_rest(&auth));
                tear_down(state);
            }
}

/* Up to where the reply is due. */
static struct nvf_auth_message begin(void)
{
    const struct nvf_auth_message offer = negotiation();
    send_message(&offer);
    return receive(NVF_AUTH_CHALLENGE);
}

static void reply__wrong_response(void **state)
{
    (void)state;
    const struct nvf_auth_message challenge = begin();
    struct nvf_auth_message reply = answer(&challenge, false, NULL);
    reply.response[31] ^= 1;
    send_message(&reply);
    expect_failure(NVF_AUTH_FAILED);
}

static void reply__wrong_transaction(void **state)
{
    (void)state;
    const struct nvf_auth_message challenge = begin();
    struct nvf_auth_message reply = answer(&challenge, false, NULL);
    reply.transaction++;
    send_message(&reply);
    expect_failure(NVF_AUTH_INCORRECT_PAYLOAD);
}

static void reply__wrong_lengths(void **state)
{
    for (int which = 0; which < 2; which++) {
        set_up(state);
        const struct nvf_auth_message challenge = begin();
        struct nvf_auth_message reply = answer(&challenge, false, NULL);
        if (which)
            reply.hash_bytes = 64;
        else
            reply.dh_bytes = 256; /* with the null group */
        send_message(&reply);
        expect_failure(NVF_AUTH_INCORRECT_PAYLOAD);
        tear_down(state);
    }
}

static void reply__bad_group_element(void **state)
{
    (void)state;
    static uint8_t dh_secret[NVF_DH_MAX];
    policy.group = NVF_FFDHE2048;
    const struct nvf_auth_message challenge = begin();
    struct nvf_auth_message reply = answer(&challenge, false, dh_secret);
    memset(reply.dh, 0, sizeof(reply.dh));
    reply.dh[255] = 1;
    send_message(&reply);
    expect_failure(NVF_AUTH_INCORRECT_PAYLOAD);
}

static void reply__proof_that_cannot_be_given(void **state)
{
    (void)state;
    policy.has_controller_secret = false;
    const struct nvf_auth_message challenge = begin();
    const struct nvf_auth_message reply = answer(&challenge, true, NULL);
    send_message(&reply);
    expect_failure(NVF_AUTH_FAILED);
}

static void reply__reflected_challenge(void **state)
{
    (void)state;
    const struct nvf_auth_message challenge = begin();
    struct nvf_auth_message reply = answer(&challenge, true, NULL);
    memcpy(reply.challenge, challenge.challenge, reply.hash_bytes);
    send_message(&reply);
    expect_failure(NVF_AUTH_FAILED);
}

static void reply__replayed(void **state)
{
    const struct nvf_auth_message challenge = begin();
    const struct nvf_auth_message reply = answer(&challenge, false, NULL);
    send_message(&reply);
    receive(NVF_AUTH_SUCCESS1);
    tear_down(state);
    set_up(state);
    begin();
    send_message(&reply); /* of another connection's challenge */
    expect_failure(NVF_AUTH_FAILED);
}

static void negotiate__no_downgrade(void **state)
{
    set_up(state);
    struct nvf_auth_message offer = negotiation();
    policy.hash = NVF_SHA384;
    offer.hash_count = 1; /* SHA-256 */
    send_message(&offer);
    expect_failure(NVF_AUTH_HASH_NOT_USABLE);
    tear_down(state);
    set_up(state);
    offer = negotiation();
    policy.group = NVF_FFDHE3072;
    offer.group_count = 3; /* up to ffdhe3072 */
    send_message(&offer);
    assert_int_equal(auth.state, NVT_AUTH_CHALLENGE);
    offer.group_count = 2;
    send_message(&offer); /* anew */
    expect_failure(NVF_AUTH_GROUP_NOT_USABLE);
    tear_down(state);
    set_up(state);
    offer = negotiation();
    offer.groups[0] = 9; /* not known; the next that is will do */
    send_message(&offer);
    assert_int_equal(receive(NVF_AUTH_CHALLENGE).group, NVF_FFDHE2048);
    tear_down(state);
}

static void negotiate__faults(void **state)
{
    set_up(state);
    struct nvf_auth_message offer = negotiation();
    offer.concatenation = 1;
    send_message(&offer);
    expect_failure(NVF_AUTH_CONCAT_MISMATCH);
    tear_down(state);
    set_up(state);
    offer = negotiation();
    offer.offers_dhchap = false;
    send_message(&offer);
    expect_failure(NVF_AUTH_NOT_USABLE);
    tear_down(state);
}

static void auth__out_of_turn(void **state)
{
    set_up(state);
    expect_failure(NVF_AUTH_INCORRECT_MESSAGE); /* asked before anything was said */
    tear_down(state);
    static const enum nvf_auth_id ids[] = {NVF_AUTH_REPLY, NVF_AUTH_SUCCESS1, NVF_AUTH_SUCCESS2,
                                           NVF_AUTH_CHALLENGE, NVF_AUTH_FAILURE1};
    for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++) {
        set_up(state);
        send_message(&(struct nvf_auth_message){.id = ids[i], .hash_bytes = 32});
        expect_failure(NVF_AUTH_INCORRECT_MESSAGE);
        tear_down(state);
    }
    set_up(state);
    assert_int_equal(nvt_auth_send(&auth, (const uint8_t[16]){9}, 16), 0);
    expect_failure(NVF_AUTH_INCORRECT_PAYLOAD);
    tear_down(state);
}

static void auth__host_gives_up(void **state)
{
    (void)state;
    begin();
    send_message(&(struct nvf_auth_message){
        .id = NVF_AUTH_FAILURE2, .transaction = TRANSACTION, .reason = 1, .explanation = 4});
    assert_int_equal(auth.state, NVT_AUTH_FAILED);
    assert_int_equal(auth.fault, 4);
    assert_non_null(nvf_auth_fault_text(auth.fault));
    assert_non_null(nvf_auth_fault_text(200));
}

static void receive__no_room(void **state)
{
    (void)state;
    uint8_t bytes[NVF_AUTH_MESSAGE_MAX];
    size_t len = 0;
    const struct nvf_auth_message offer = negotiation();
    send_message(&offer);
    assert_int_equal(nvt_auth_receive(&auth, 47, bytes, &len), NVME_SC_INVALID_FIELD | NVME_SC_DNR);
    assert_int_equal(nvt_auth_receive(&auth, 48, bytes, &len), 0);
    assert_int_equal(len, 48);
}

static void auth__again_while_authenticated(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        const struct nvf_auth_message challenge = begin();
        assert_int_equal(auth.authenticated, round > 0);
        struct nvf_auth_message reply = answer(&challenge, false, NULL);
        reply.response[0] ^= round == 2;
        send_message(&reply);
        if (round < 2)
            receive(NVF_AUTH_SUCCESS1);
    }
    expect_failure(NVF_AUTH_FAILED);
}

static bool no_random(uint8_t *out, size_t len)
{
    (void)out;
    (void)len;
    return false;
}

static void receive__no_random_bytes(void **state)
{
    (void)state;
    auth.random = no_random;
    const struct nvf_auth_message offer = negotiation();
    send_message(&offer);
    expect_failure(NVF_AUTH_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auth__each_hash_and_group),
        cmocka_unit_test_setup_teardown(reply__wrong_response, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reply__wrong_transaction, set_up, tear_down),
        cmocka_unit_test(reply__wrong_lengths),
        cmocka_unit_test_setup_teardown(reply__bad_group_element, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reply__proof_that_cannot_be_given, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reply__reflected_challenge, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reply__replayed, set_up, tear_down),
        cmocka_unit_test(negotiate__no_downgrade),
        cmocka_unit_test(negotiate__faults),
        cmocka_unit_test(auth__out_of_turn),
        cmocka_unit_test_setup_teardown(auth__host_gives_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(receive__no_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(auth__again_while_authenticated, set_up, tear_down),
        cmocka_unit_test_setup_teardown(receive__no_random_bytes, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
