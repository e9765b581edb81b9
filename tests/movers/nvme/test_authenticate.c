/* SPDX-License-Identifier: BSD-2-Clause */
/* Authentication in the target's model: what a queue takes before and after, and when it ends. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nvme/host/dhchap.h"
#include "test_model_host.h"

#define HOST_SECRET "DHHC-1:01:AgkQFx4lLDM6QUhPVl1ka3J5gIeOlZyjqrG4v8bN1Nuz7TWq:"
#define CONTROLLER_SECRET "DHHC-1:00:AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09pl1OOC:"
#define SECOND 1000000000ull

enum { DATA = 1 << 20, MESSAGE = 4096 };
enum { REQUIRED = 0x191 | NVME_SC_DNR, INVALID = NVME_SC_INVALID_FIELD | NVME_SC_DNR };
enum { CDW10 = 0xe9 << 24 | 1 << 16 | 1 << 8 };

static struct nvh_secrets secrets;
static int refusals;

static void note_refusal(const struct nvt_queue *queue, const char *why)
{
    assert_string_equal(queue->ctrl->host_nqn, HOST_NQN);
    assert_non_null(why);
    refusals++;
}

static int setup_policy(void **state)
{
    struct nvt_auth_policy policy;
    setup(state);
    refusals = 0;
    target.refused = note_refusal;
    secrets = (struct nvh_secrets){.has_host = true, .has_controller = true};
    assert_null(nvf_secret_parse(HOST_SECRET, &secrets.host));
    assert_null(nvf_secret_parse(CONTROLLER_SECRET, &secrets.controller));
    assert_null(nvt_auth_policy_parse(HOST_SECRET, CONTROLLER_SECRET, 0, NVF_FFDHE2048, &policy));
    assert_int_equal(nvt_subsystem_authenticate(subsystem, HOST_NQN, &policy), -ENOENT);
    struct nvt_nqn allowed = {HOST_NQN};
    const struct nvt_config_subsystem config = {
        .nqn.text = NQN, .allow_any_host = true, .host_count = 1, .hosts = &allowed};
    assert_int_equal(nvt_subsystem_update(subsystem, &config), 0);
    assert_int_equal(nvt_subsystem_authenticate(subsystem, HOST_NQN, &policy), 0);
    return 0;
}

static uint16_t say_auth(struct nvt_queue *queue, enum nvf_type type, uint32_t cdw10,
                         uint32_t len_bytes)
{
    struct nvf_sqe sqe = command(NVF_OPCODE, type, DATA, MESSAGE);
    sqe.cdw10 = htole32(cdw10);
    sqe.cdw11 = htole32(len_bytes);
    return say(queue, &sqe);
}

/* One step of the exchange. */
static uint16_t step(struct nvt_queue *queue, struct nvh_dhchap *chap)
{
    if (nvh_dhchap_sends(chap)) {
        const size_t len = nvh_dhchap_next(chap, host + DATA);
        return say_auth(queue, NVF_AUTH_SEND, CDW10, (uint32_t)len);
    }
    memset(host + DATA, 0xff, MESSAGE);
    const uint16_t status = say_auth(queue, NVF_AUTH_RECEIVE, CDW10, MESSAGE);
    if (!status)
        nvh_dhchap_take(chap, host + DATA, MESSAGE);
    return status;
}

/* Whether the host is authenticated. */
static bool authenticate(struct nvt_queue *queue, uint16_t transaction)
{
    struct nvh_dhchap chap;
    nvh_dhchap_init(&chap, &secrets, HOST_NQN, NQN, transaction);
    while (!nvh_dhchap_has_ended(&chap))
        assert_int_equal(step(queue, &chap), 0);
    const bool done = chap.state == NVH_DHCHAP_DONE;
    nvh_dhchap_clear(&chap);
    return done;
}

static uint16_t connect_and_check(struct nvt_queue *queue, uint16_t cntlid)
{
    assert_int_equal(connect_as_host(queue, NQN, cntlid), 0);
    assert_int_equal(le64toh(response.result) >> 16, 2); /* ATR, not ASCR */
    return (uint16_t)le64toh(response.result);
}

static void queue__takes_nothing_before(void **state)
{
    (void)state;
    connect_and_check(&admin, 0xffff);
    struct nvf_sqe sqe = command(nvme_admin_identify, 0, DATA, 4096);
    assert_int_equal(say(&admin, &sqe), REQUIRED);
    sqe = command(NVF_OPCODE, NVF_PROPERTY_GET, 0, 0);
    assert_int_equal(say(&admin, &sqe), REQUIRED);
    assert_int_equal(set_config(&admin, CC_ENABLED), REQUIRED);
    assert_int_equal(connect_as_host(&admin, NQN, 0xffff), REQUIRED);
    assert_int_equal(connect_as_host(&io_queue, NQN, 1), NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR);
    assert_null(io_queue.auth);
    assert_true(authenticate(&admin, 1));
    assert_int_equal(set_config(&admin, CC_ENABLED), 0);
    assert_int_equal(refusals, 0);
}

static void queue__each_authenticates_itself(void **state)
{
    (void)state;
    const uint16_t cntlid = connect_and_check(&admin, 0xffff);
    assert_true(authenticate(&admin, 1));
    assert_int_equal(set_config(&admin, CC_ENABLED), 0);
    connect_and_check(&io_queue, cntlid);
    const struct nvf_sqe sqe = transfer(nvme_cmd_read, 0, 1, DATA);
    assert_int_equal(say(&io_queue, &sqe), REQUIRED);
    assert_true(authenticate(&io_queue, 2));
    assert_int_equal(say(&io_queue, &sqe), 0);
    assert_true(authenticate(&io_queue, 3)); /* anew */
    assert_int_equal(say(&io_queue, &sqe), 0);
}

static void secret__wrong_ends_the_connection(void **state)
{
    (void)state;
    connect_and_check(&admin, 0xffff);
    secrets.host.bytes[0] ^= 1;
    assert_false(authenticate(&admin, 1));
    assert_int_equal(cuts, 1);
    assert_int_equal(refusals, 1);
    assert_int_equal(set_config(&admin, CC_ENABLED), REQUIRED);
    assert_int_equal(say_auth(&admin, NVF_AUTH_RECEIVE, CDW10, MESSAGE), REQUIRED);
    assert_int_equal(cuts, 1);
}

static void secret__wrong_anew_ends_the_queue_alone(void **state)
{
    (void)state;
    const uint16_t cntlid = connect_and_check(&admin, 0xffff);
    assert_true(authenticate(&admin, 1));
    assert_int_equal(set_config(&admin, CC_ENABLED), 0);
    connect_and_check(&io_queue, cntlid);
    assert_true(authenticate(&io_queue, 2));
    secrets.host.bytes[0] ^= 1;
    assert_false(authenticate(&io_queue, 3));
    assert_true(io_queue.is_cut);
    assert_false(admin.is_cut);
    const struct nvf_sqe sqe = transfer(nvme_cmd_read, 0, 1, DATA);
    assert_int_equal(say(&io_queue, &sqe), REQUIRED);
}

static void command__fields_are_checked(void **state)
{
    (void)state;
    connect_and_check(&admin, 0xffff);
    static const uint32_t wrong[] = {0xe8u << 24 | 1 << 16 | 1 << 8, 0xe9u << 24 | 1 << 8,
                                     0xe9u << 24 | 1 << 16};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(say_auth(&admin, NVF_AUTH_SEND, wrong[i], 64), INVALID);
        assert_int_equal(say_auth(&admin, NVF_AUTH_RECEIVE, wrong[i], 64), INVALID);
    }
    assert_int_equal(say_auth(&admin, NVF_AUTH_SEND, CDW10, 0), INVALID);
    assert_int_equal(say_auth(&admin, NVF_AUTH_SEND, CDW10, NVT_TRANSFER_MAX + 1), INVALID);
    assert_int_equal(say_auth(&admin, NVF_AUTH_SEND, CDW10, MESSAGE + 1),
                     NVME_SC_SGL_INVALID_DATA | NVME_SC_DNR);
    assert_true(authenticate(&admin, 1)); /* none of these was a message */
}

static void exchange__has_a_time_limit(void **state)
{
    (void)state;
    struct nvh_dhchap chap;
    connect_and_check(&admin, 0xffff);
    nvt_target_tick(&target, 29 * SECOND);
    assert_int_equal(cuts, 0);
    nvt_target_tick(&target, 31 * SECOND);
    assert_int_equal(cuts, 1);
    assert_true(nvt_queue_gone(&admin));
    make_queue(&admin, 0);
    target.now_ns = 100 * SECOND;
    connect_and_check(&admin, 0xffff);
    assert_true(authenticate(&admin, 1));
    nvt_target_tick(&target, 200 * SECOND); /* at rest */
    assert_int_equal(cuts, 1);
    target.now_ns = 300 * SECOND;
    nvh_dhchap_init(&chap, &secrets, HOST_NQN, NQN, 2);
    assert_int_equal(step(&admin, &chap), 0);
    nvt_target_tick(&target, 329 * SECOND);
    assert_int_equal(cuts, 1);
    nvt_target_tick(&target, 331 * SECOND);
    assert_int_equal(cuts, 2);
}

static void policy__is_that_of_the_time_of_connect(void **state)
{
    (void)state;
    connect_and_check(&admin, 0xffff);
    assert_int_equal(nvt_subsystem_authenticate(subsystem, HOST_NQN, NULL), 0);
    assert_int_equal(set_config(&admin, CC_ENABLED), REQUIRED);
    assert_true(authenticate(&admin, 1));
    assert_int_equal(set_config(&admin, CC_ENABLED), 0);
    assert_int_equal(connect_as_host(&io_queue, NQN, 1), 0);
    assert_int_equal(le64toh(response.result), 1); /* no authentication */
    assert_int_equal(say_auth(&io_queue, NVF_AUTH_SEND, CDW10, 64),
                     NVME_SC_INVALID_OPCODE | NVME_SC_DNR);
}

static void connect__that_fails_leaves_nothing(void **state)
{
    (void)state;
    assert_int_equal(connect_as_host(&admin, NQN, 7),
                     NVF_SPECIFIC(NVME_SC_CONNECT_INVALID_PARAM) | NVME_SC_DNR);
    assert_null(admin.auth);
    connect_and_check(&admin, 0xffff);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup_policy, teardown)
    const struct CMUnitTest tests[] = {
        CASE(queue__takes_nothing_before),
        CASE(queue__each_authenticates_itself),
        CASE(secret__wrong_ends_the_connection),
        CASE(secret__wrong_anew_ends_the_queue_alone),
        CASE(command__fields_are_checked),
        CASE(exchange__has_a_time_limit),
        CASE(policy__is_that_of_the_time_of_connect),
        CASE(connect__that_fails_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
