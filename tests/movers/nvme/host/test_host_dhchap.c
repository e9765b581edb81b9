/* SPDX-License-Identifier: BSD-2-Clause */
/* The host's machine of DH-HMAC-CHAP against the controller's, and against wrong messages. */
#include "nvme/host/dhchap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../secrets.h"
#include "nvme/target/model/auth.h"

static struct nvh_secrets secrets;
static struct nvh_dhchap host;
static struct nvt_auth_policy policy;
static struct nvt_auth controller;

static int set_up(void **state)
{
    (void)state;
    secrets = (struct nvh_secrets){.has_host = true};
    assert_null(nvf_secret_parse(HOST_SECRET, &secrets.host));
    assert_null(nvf_secret_parse(CONTROLLER_SECRET, &secrets.controller));
    assert_null(nvt_auth_policy_parse(HOST_SECRET, CONTROLLER_SECRET, 0, 0, &policy));
    strcpy(policy.host_nqn, "nqn.h");
    strcpy(policy.subsystem_nqn, "nqn.s");
    nvt_auth_init(&controller, &policy, NULL);
    nvh_dhchap_init(&host, &secrets, "nqn.h", "nqn.s", 3);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    nvt_auth_clear(&controller);
    nvh_dhchap_clear(&host);
    return 0;
}

static void send_one(void)
{
    uint8_t bytes[NVF_AUTH_MESSAGE_MAX];
    assert_int_equal(nvt_auth_send(&controller, bytes, nvh_dhchap_next(&host, bytes)), 0);
}

static size_t receive_one(uint8_t bytes[NVF_AUTH_MESSAGE_MAX])
{
    size_t len;
    assert_int_equal(nvt_auth_receive(&controller, 4096, bytes, &len), 0);
    return len;
}

static void run(void)
{
    uint8_t bytes[NVF_AUTH_MESSAGE_MAX];
    while (!nvh_dhchap_has_ended(&host))
        if (nvh_dhchap_sends(&host))
            send_one();
        else
            nvh_dhchap_take(&host, bytes, receive_one(bytes));
}

static void both__each_hash_and_group(void **state)
{
    for (uint8_t hash = NVF_SHA256; hash <= NVF_SHA512; hash++)
        for (uint8_t group = NVF_DH_NULL; group <= NVF_FFDHE8192; group++)
            for (int proves = 0; proves < 2; proves++) {
                set_up(state);
                policy.hash = hash;
                policy.group = group;
                secrets.has_controller = proves;
                run();
                assert_int_equal(host.state, NVH_DHCHAP_DONE);
                assert_true(controller.authenticated);
                assert_int_equal(host.hash, hash);
                assert_int_equal(host.group, group);
                nvt_auth_clear(&controller);
            }
}

static void host__with_a_wrong_secret_is_told(void **state)
{
    (void)state;
    secrets.host.bytes[0] ^= 1;
    run();
    assert_int_equal(host.state, NVH_DHCHAP_FAILED);
    assert_true(host.is_their_word);
    assert_int_equal(host.fault, NVF_AUTH_FAILED);
    assert_false(controller.authenticated);
}

static void controller__with_a_wrong_secret_is_told(void **state)
{
    (void)state;
    secrets.has_controller = true;
    policy.controller_secret.bytes[0] ^= 1;
    run();
    assert_int_equal(host.state, NVH_DHCHAP_FAILED);
    assert_true(host.is_proof_false);
    assert_false(host.is_their_word);
    assert_int_equal(controller.state, NVT_AUTH_FAILED);
    assert_false(controller.authenticated);
}

static void controller__without_a_secret_cannot_prove(void **state)
{
    (void)state;
    secrets.has_controller = true;
    policy.has_controller_secret = false;
    run();
    assert_int_equal(host.state, NVH_DHCHAP_FAILED);
}

/* A controller that leaves its proof out, having taken the reply. */
static void controller__that_says_success_proves_nothing(void **state)
{
    (void)state;
    uint8_t bytes[NVF_AUTH_MESSAGE_MAX];
    const struct nvf_auth_message success = {
        .id = NVF_AUTH_SUCCESS1, .transaction = 3, .hash_bytes = 32};
    secrets.has_controller = true;
    send_one();
    nvh_dhchap_take(&host, bytes, receive_one(bytes));
    send_one();
    nvh_dhchap_take(&host, bytes, nvf_auth_encode(&success, bytes));
    assert_true(host.is_proof_false);
    assert_int_equal(host.state, NVH_DHCHAP_FAILURE2);
}

static void expect_fault(const struct nvf_auth_message *m, enum nvf_auth_fault fault)
{
    uint8_t bytes[NVF_AUTH_MESSAGE_MAX];
    nvh_dhchap_init(&host, &secrets, "nqn.h", "nqn.s", 3);
    nvh_dhchap_next(&host, bytes);
    nvh_dhchap_take(&host, bytes, nvf_auth_encode(m, bytes));
    assert_int_equal(host.state, NVH_DHCHAP_FAILURE2);
    assert_int_equal(host.fault, fault);
    nvh_dhchap_next(&host, bytes);
    assert_int_equal(host.state, NVH_DHCHAP_FAILED);
}

static void challenge__is_checked(void **state)
{
    (void)state;
    const struct nvf_auth_message good = {.id = NVF_AUTH_CHALLENGE,
                                          .transaction = 3,
                                          .hash = NVF_SHA256,
                                          .hash_bytes = 32,
                                          .sequence = 1};
    struct nvf_auth_message m = good;
    m.transaction = 4;
    expect_fault(&m, NVF_AUTH_INCORRECT_PAYLOAD);
    m = good;
    m.sequence = 0;
    expect_fault(&m, NVF_AUTH_INCORRECT_PAYLOAD);
    m = good;
    m.hash_bytes = 48;
    expect_fault(&m, NVF_AUTH_INCORRECT_PAYLOAD);
    m = good;
    m.group = NVF_FFDHE2048;
    m.dh_bytes = 256; /* all zeroes is in no group */
    expect_fault(&m, NVF_AUTH_INCORRECT_PAYLOAD);
    m = (struct nvf_auth_message){.id = NVF_AUTH_SUCCESS1, .transaction = 3, .hash_bytes = 32};
    expect_fault(&m, NVF_AUTH_INCORRECT_MESSAGE);
}

/* A message of the controller with a byte changed or cut off never ends in success. */
static void message__damaged_is_no_success(void **state)
{
    uint8_t bytes[NVF_AUTH_MESSAGE_MAX];
    const size_t header = 16, hash = 32;
    for (size_t at = 0; at < header + hash; at++)
        for (int cuts = 0; cuts < 2; cuts++) {
            set_up(state);
            secrets.has_controller = true;
            for (int i = 0; i < 2; i++) {
                send_one();
                size_t len = receive_one(bytes);
                if (i == 1 && cuts)
                    len = at;
                else if (i == 1)
                    bytes[at] ^= 0x41;
                nvh_dhchap_take(&host, bytes, len);
            }
            const bool is_padding = !cuts && host.state == NVH_DHCHAP_SUCCESS2;
            if (is_padding) /* reserved bytes mean nothing */
                assert_true(at == 2 || at == 3 || at == 7 || (at >= 9 && at < header));
            else
                assert_true(host.state == NVH_DHCHAP_FAILURE2 || host.is_their_word);
            nvt_auth_clear(&controller);
        }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(both__each_hash_and_group),
        CASE(host__with_a_wrong_secret_is_told),
        CASE(controller__with_a_wrong_secret_is_told),
        CASE(controller__without_a_secret_cannot_prove),
        CASE(controller__that_says_success_proves_nothing),
        CASE(challenge__is_checked),
        CASE(message__damaged_is_no_success),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
