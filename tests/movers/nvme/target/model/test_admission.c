/* SPDX-License-Identifier: BSD-2-Clause */
/* The hosts that get a controller, and the number of a queue: hosts that have yet to prove
 * themselves beside those that have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../secrets.h"
#include "nvme/host/dhchap.h"
#include "nvme/target/model/authenticate.h"
#include "nvme/target/model/ctrl.h"
#include "test_model_host.h"

#define BUSY NVF_SPECIFIC(NVME_SC_CONNECT_CTRL_BUSY)
#define SECRET_NQN HOST_NQN "-with-secret"
#define SECOND_NS 1000000000ull

enum { DATA = 1 << 20, MESSAGE = 4096, CDW10 = 0xe9 << 24 | 1 << 16 | 1 << 8 };

static struct nvt_queue crowd[NVT_CTRLS_MAX], *late;

static int setup_policy(void **state)
{
    struct nvt_auth_policy policy;
    setup(state);
    struct nvt_nqn allowed = {SECRET_NQN};
    const struct nvt_config_subsystem config = {
        .nqn.text = NQN, .allow_any_host = true, .host_count = 1, .hosts = &allowed};
    assert_null(nvt_auth_policy_parse(HOST_SECRET, CONTROLLER_SECRET, 0, 0, &policy));
    assert_int_equal(nvt_subsystem_update(subsystem, &config), 0);
    assert_int_equal(nvt_subsystem_authenticate(subsystem, SECRET_NQN, &policy), 0);
    late = calloc(1, sizeof(*late));
    return 0;
}

static int teardown_policy(void **state)
{
    for (int i = 0; i < NVT_CTRLS_MAX; i++)
        if (crowd[i].target && !crowd[i].is_gone)
            assert_true(nvt_queue_gone(&crowd[i]));
    memset(crowd, 0, sizeof(crowd));
    free(late);
    return teardown(state);
}

static uint16_t admit(struct nvt_queue *queue, const char *address, const char *host_nqn)
{
    make_queue_from(queue, 0, address);
    return connect_named(queue, NQN, 0xffff, 1, host_nqn);
}

static void authenticate(struct nvt_queue *queue)
{
    struct nvh_secrets secrets = {.has_host = true};
    struct nvh_dhchap chap;
    assert_null(nvf_secret_parse(HOST_SECRET, &secrets.host));
    nvh_dhchap_init(&chap, &secrets, SECRET_NQN, NQN, 1);
    while (!nvh_dhchap_has_ended(&chap)) {
        const bool sends = nvh_dhchap_sends(&chap);
        struct nvf_sqe sqe =
            command(NVF_OPCODE, sends ? NVF_AUTH_SEND : NVF_AUTH_RECEIVE, DATA, MESSAGE);
        sqe.cdw10 = htole32(CDW10);
        sqe.cdw11 = htole32(sends ? (uint32_t)nvh_dhchap_next(&chap, host + DATA) : MESSAGE);
        assert_int_equal(say(queue, &sqe), 0);
        if (!sends)
            nvh_dhchap_take(&chap, host + DATA, MESSAGE);
    }
    assert_int_equal(chap.state, NVH_DHCHAP_DONE);
    nvh_dhchap_clear(&chap);
}

static int cut_count(int count)
{
    int cut = 0;
    for (int i = 0; i < count; i++)
        cut += crowd[i].is_cut;
    return cut;
}

/* Anybody who knows the name of a host with a secret may connect in it: a few times. */
static void unproven__the_oldest_of_an_address_makes_room(void **state)
{
    (void)state;
    enum { CROWD = 100, AT_MOST = 40 };
    assert_int_equal(admit(late, "192.0.2.7", SECRET_NQN), 0);
    for (int i = 0; i < CROWD; i++) {
        const uint16_t status = admit(&crowd[i], "192.0.2.66", SECRET_NQN);
        assert_true(status == 0 || status == BUSY);
    }
    assert_true(cut_count(CROWD) >= CROWD - AT_MOST);
    assert_true(crowd[0].is_cut);
    assert_false(crowd[CROWD - 1].is_cut);
    assert_false(late->is_cut); /* older, but of another address */
    assert_true(nvt_queue_gone(late));
}

static void unproven__the_oldest_of_all_makes_room(void **state)
{
    (void)state;
    enum { CROWD = 600, OF_ADDRESS = 10, AT_MOST = 300 };
    char address[32];
    for (int i = 0; i < CROWD; i++) {
        snprintf(address, sizeof(address), "198.51.100.%d", i / OF_ADDRESS);
        assert_int_equal(admit(&crowd[i], address, SECRET_NQN), 0);
    }
    assert_true(cut_count(CROWD) >= CROWD - AT_MOST);
    assert_true(crowd[0].is_cut);
    assert_int_equal(admit(late, "192.0.2.7", HOST_NQN), 0);
    assert_true(nvt_queue_gone(late));
}

/* Hosts of which nothing is asked: those of one address leave some for others. */
static void table__one_address_leaves_some(void **state)
{
    (void)state;
    int admitted = 0;
    while (admitted < NVT_CTRLS_MAX && !admit(&crowd[admitted], "192.0.2.66", HOST_NQN))
        admitted++;
    assert_in_range(admitted, NVT_CTRLS_MAX / 2, NVT_CTRLS_MAX * 7 / 8);
    assert_int_equal(cuts, 0); /* nobody who has one loses it */
    assert_int_equal(admit(late, "192.0.2.7", HOST_NQN), 0);
    assert_true(nvt_queue_gone(late));
}

/* The host, and a queue of who knows its names and its controller's number. */
static uint16_t begin_proven(void)
{
    assert_int_equal(connect_named(&admin, NQN, 0xffff, 1, SECRET_NQN), 0);
    const uint16_t cntlid = (uint16_t)le64toh(response.result);
    authenticate(&admin);
    assert_int_equal(set_config(&admin, CC_ENABLED), 0);
    return cntlid;
}

static void number__is_for_the_host_that_has_proved_itself(void **state)
{
    (void)state;
    const uint16_t cntlid = begin_proven();
    make_queue_from(&crowd[0], 1, "192.0.2.66");
    assert_int_equal(connect_named(&crowd[0], NQN, cntlid, 1, SECRET_NQN), 0);
    assert_int_equal(connect_named(&io_queue, NQN, cntlid, 1, SECRET_NQN), 0);
    authenticate(&io_queue);
    assert_ptr_equal(admin.ctrl->queues[1], &io_queue);
    const struct nvf_sqe sqe = transfer(nvme_cmd_read, 0, 1, DATA);
    assert_int_equal(say(&io_queue, &sqe), 0);
    authenticate(&crowd[0]); /* it knows the secret, but it is too late */
    assert_true(crowd[0].is_cut);
    assert_ptr_equal(admin.ctrl->queues[1], &io_queue);
}

static void number__is_taken_from_where_the_host_is(void **state)
{
    (void)state;
    assert_int_equal(connect_as_host(&admin, NQN, 0xffff), 0);
    const uint16_t cntlid = (uint16_t)le64toh(response.result);
    assert_int_equal(set_config(&admin, CC_ENABLED), 0);
    make_queue_from(&crowd[0], 1, "192.0.2.66");
    assert_int_equal(connect_as_host(&crowd[0], NQN, cntlid),
                     NVF_SPECIFIC(NVME_SC_CONNECT_INVALID_HOST) | NVME_SC_DNR);
    assert_int_equal(connect_as_host(&io_queue, NQN, cntlid), 0);
}

static void keep_alive__is_not_for_others_to_say(void **state)
{
    (void)state;
    const uint16_t cntlid = begin_proven();
    struct nvf_sqe sqe = command(nvme_admin_set_features, 0, 0, 0);
    sqe.cdw10 = htole32(NVME_FEAT_FID_KATO);
    sqe.cdw11 = htole32(1000);
    assert_int_equal(say(&admin, &sqe), 0);
    for (int i = 0; i < 3; i++) {
        target.threads[0].now_ns = target.now_ns = (uint64_t)i * SECOND_NS;
        make_queue_from(&crowd[i], 1, "192.0.2.66");
        assert_int_equal(connect_named(&crowd[i], NQN, cntlid, 1, SECRET_NQN), 0);
        sqe = transfer(nvme_cmd_flush, 0, 1, 0);
        assert_int_not_equal(say(&crowd[i], &sqe), 0);
        assert_true(nvt_queue_gone(&crowd[i])); /* nor by its end */
        nvt_target_tick(&target, target.now_ns);
    }
    assert_true(admin.is_cut);
    target.threads[0].now_ns = target.now_ns = 0;
}

static int told_of_end;

static void note_end(const struct nvt_queue *queue, const char *why)
{
    assert_true(queue->qid);
    assert_non_null(strstr(why, "prove itself"));
    told_of_end++;
}

static void pending__has_a_time_limit_and_a_bound(void **state)
{
    (void)state;
    enum { CROWD = 80 };
    target.ended = note_end;
    const uint16_t cntlid = begin_proven();
    for (int i = 0; i < CROWD; i++) {
        make_queue_from(&crowd[i], 1, "192.0.2.66");
        assert_int_equal(connect_named(&crowd[i], NQN, cntlid, 1, SECRET_NQN), 0);
    }
    assert_int_equal(cut_count(CROWD), CROWD - NVT_QUEUES_MAX);
    assert_false(crowd[CROWD - 1].is_cut);
    nvt_target_tick(&target, 31 * SECOND_NS);
    nvt_target_tick(&target, 32 * SECOND_NS);
    assert_int_equal(cut_count(CROWD), CROWD);
    assert_int_equal(told_of_end, NVT_QUEUES_MAX); /* each once */
    assert_int_equal(target.ended_count, NVT_QUEUES_MAX);
    target.ended = NULL;
    assert_false(admin.is_cut);
    assert_true(nvt_queue_gone(&admin)); /* the controller waits for those */
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup_policy, teardown_policy)
    const struct CMUnitTest tests[] = {
        CASE(unproven__the_oldest_of_an_address_makes_room),
        CASE(unproven__the_oldest_of_all_makes_room),
        CASE(table__one_address_leaves_some),
        CASE(number__is_for_the_host_that_has_proved_itself),
        CASE(number__is_taken_from_where_the_host_is),
        CASE(keep_alive__is_not_for_others_to_say),
        CASE(pending__has_a_time_limit_and_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
