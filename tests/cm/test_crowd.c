/* SPDX-License-Identifier: BSD-2-Clause */
/* What strangers can make a machine keep and send, and what they can foresee. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rig.h"

enum { STRANGER = 2, FLOOD = 3000 };

/* Asks from nodes beside those of the rig, too: a caller may say any address. */
static void ask(int from, uint32_t number, struct sw_cm_message *out)
{
    *out = (struct sw_cm_message){.attribute = SW_CM_REQ, .transaction = number};
    out->req = rig_req(from, 1, number);
    out->req.local_comm_id = number;
    out->req.local_ca_guid = 0x1000 + (uint64_t)from;
    /* As long as can be said. */
    out->req.remote_cm_response_timeout = out->req.local_cm_response_timeout = 31;
    out->req.primary.local_ack_timeout = 31;
    out->req.max_cm_retries = 15;
    rig_inject(from, 1, out);
}

static struct sw_cm_id *asked(void)
{
    return rig_expect(1, SW_CM_EVENT_REQ).id;
}

static void refuse(struct sw_cm_id *id, const char *why)
{
    assert_int_equal(
        sw_cm_reject(&rig[1].cm, id, SW_CM_REASON_CONSUMER, NULL, 0, why, strlen(why) + 1, rig_now),
        0);
    rig_lose(1, SW_CM_REJ);
    sw_cm_id_destroy(&rig[1].cm, id, rig_now);
}

static void flood_and_refuse(void)
{
    struct sw_cm_message req;
    for (uint32_t i = 0; i < FLOOD; i++) {
        rig[1].id_count = 0; /* each has been given back */
        ask(STRANGER, 1000 + i, &req);
        refuse(asked(), "no");
    }
}

static void refused__keep_no_id(void **state)
{
    (void)state;
    flood_and_refuse();
    assert_int_equal(rig[1].released, FLOOD);
    rig_is_empty(1);
}

static void refused__are_answered_the_same_way(void **state)
{
    struct sw_cm_message req;
    (void)state;
    ask(0, 7, &req);
    refuse(asked(), "because");
    for (int i = 0; i < 3; i++) {
        rig_pass(5000 * RIG_MS);
        rig_inject(0, 1, &req);
        assert_string_equal((const char *)rig_lose(1, SW_CM_REJ).rej.private_data, "because");
    }
    rig_no_event(1);
    rig_pass(21000 * RIG_MS); /* whatever it says, no longer: it is new */
    rig_inject(0, 1, &req);
    asked();
}

static void refused__of_others_are_remembered_in_a_flood(void **state)
{
    struct sw_cm_message req;
    (void)state;
    ask(0, 7, &req);
    refuse(asked(), "because");
    flood_and_refuse();
    rig_inject(0, 1, &req);
    assert_string_equal((const char *)rig_lose(1, SW_CM_REJ).rej.private_data, "because");
    rig_no_event(1);
}

static void asking__is_bounded_for_one_address_and_not_for_others(void **state)
{
    struct sw_cm_message req;
    struct sw_cm_id active, *passive;
    (void)state;
    rig_connect(&active, &passive, 17, 29);
    for (uint32_t i = 0; i < SW_CM_ASKING_EACH_MAX + 100; i++) {
        ask(STRANGER, 1000 + i, &req);
        if (i < SW_CM_ASKING_EACH_MAX)
            asked();
    }
    rig_no_event(1);
    rig_nothing_sent(1); /* as if they had been lost */
    assert_int_equal(rig[1].cm.counts.crowded, 100);
    assert_int_equal(passive->state, SW_CM_ESTABLISHED);
    ask(0, 7, &req);
    assert_int_equal(asked()->remote_comm_id, 7);
    sw_cm_id_destroy(&rig[1].cm, &rig[1].ids[1], rig_now); /* one makes room for one */
    rig_lose(1, SW_CM_REJ);
    ask(STRANGER, 5000, &req);
    asked();
    ask(STRANGER, 5001, &req);
    rig_no_event(1);
}

static void asking__of_the_same_host_is_not_counted(void **state)
{
    struct sw_cm_message req = {.attribute = SW_CM_REQ};
    struct sw_cm_path path = rig_path(1, 0);
    uint8_t mad[SW_MAD_BYTES];
    (void)state;
    path.slot = 9;
    req.req = rig_req(0, 1, 17);
    for (uint32_t i = 0; i < SW_CM_ASKING_EACH_MAX + 10; i++) {
        req.transaction = req.req.local_comm_id = req.req.local_qpn = 1 + i;
        sw_cm_mad_encode(&req, mad);
        sw_cm_receive(&rig[1].cm, &path, mad, sizeof(mad), rig_now);
        asked();
    }
    assert_int_equal(sw_cm_asking_from(&rig[1].cm, &path), 0);
}

static void drop__forgets_a_request_that_comes_again(void **state)
{
    struct sw_cm_message req;
    (void)state;
    ask(0, 7, &req);
    struct sw_cm_id *id = asked();
    assert_int_equal(sw_cm_drop(&rig[1].cm, id), 0);
    rig_nothing_sent(1);
    rig_is_empty(1);
    assert_int_equal(sw_cm_drop(&rig[1].cm, id), -22 /* EINVAL */);
    rig_inject(0, 1, &req);
    asked();
}

static void timeouts__of_strangers_are_bounded(void **state)
{
    struct sw_cm_message req;
    struct sw_cm_rep rep = rig_rep(29);
    (void)state;
    ask(STRANGER, 7, &req);
    struct sw_cm_id *id = asked();
    assert_int_equal(sw_cm_accept(&rig[1].cm, id, &rep, rig_now), 0);
    uint64_t start_ns = rig_now;
    while (id->state == SW_CM_REP_SENT)
        rig_until_due(1);
    assert_true(rig_now - start_ns <= 90000 * RIG_MS); /* and not 35 minutes */
    start_ns = rig_now;
    rig_expect(1, SW_CM_EVENT_TIMEOUT);
    rig_until_due(1);
    rig_expect(1, SW_CM_EVENT_EXIT);
    assert_true(rig_now - start_ns <= 10000 * RIG_MS); /* and not 70 s */
}

/* The REQ is by somebody who may have written another's address. */
static void rep__unheard_is_said_a_few_times(void **state)
{
    struct sw_cm_message req;
    struct sw_cm_rep rep = rig_rep(29);
    (void)state;
    rig_init(200 * RIG_MS);
    ask(STRANGER, 7, &req);
    struct sw_cm_id *id = asked();
    assert_int_equal(sw_cm_accept(&rig[1].cm, id, &rep, rig_now), 0);
    while (id->state == SW_CM_REP_SENT)
        rig_until_due(1);
    for (int i = 0; i < SW_CM_REPS_EACH; i++)
        rig_lose(1, SW_CM_REP);
    rig_lose(1, SW_CM_REJ); /* it gave up */
    rig_nothing_sent(1);
}

static void rep__is_said_for_each_req(void **state)
{
    struct sw_cm_message req;
    struct sw_cm_rep rep = rig_rep(29);
    (void)state;
    rig_init(200 * RIG_MS);
    ask(STRANGER, 7, &req);
    struct sw_cm_id *id = asked();
    assert_int_equal(sw_cm_accept(&rig[1].cm, id, &rep, rig_now), 0);
    rig_lose(1, SW_CM_REP);
    for (int i = 0; i < 10; i++) { /* who did not hear it asks again */
        rig_pass(100 * RIG_MS);
        rig_inject(STRANGER, 1, &req);
        rig_lose(1, SW_CM_REP);
        rig_nothing_sent(1);
    }
}

/* An MRA names our number, which only who hears us knows. */
static void rep__heard_is_said_as_often_as_the_peer_said(void **state)
{
    struct sw_cm_message req, mra = {.attribute = SW_CM_MRA};
    struct sw_cm_rep rep = rig_rep(29);
    int count = 0;
    (void)state;
    rig_init(200 * RIG_MS);
    ask(STRANGER, 7, &req);
    struct sw_cm_id *id = asked();
    assert_int_equal(sw_cm_accept(&rig[1].cm, id, &rep, rig_now), 0);
    rig_lose(1, SW_CM_REP);
    mra.mra = (struct sw_cm_mra){.local_comm_id = 7,
                                 .remote_comm_id = id->local_comm_id,
                                 .about = SW_CM_ABOUT_REP,
                                 .service_timeout = 14};
    rig_inject(STRANGER, 1, &mra);
    rig_expect(1, SW_CM_EVENT_MRA);
    for (; id->state == SW_CM_REP_SENT && count < 64; count++)
        rig_until_due(1);
    assert_true(count > SW_CM_REPS_EACH + 1);
}

static int bucket_in_use(const struct sw_cm *cm)
{
    for (int i = 0; i < SW_CM_BUCKETS; i++)
        if (cm->by_remote[i])
            return i;
    return -1;
}

/* The same numbers collide in no two processes. */
static void hash__depends_on_the_key(void **state)
{
    struct sw_cm_message req;
    int same = 0, last = -1;
    (void)state;
    for (uint64_t key = 0; key < 64; key++) {
        rig_init(0);
        rig[1].cm.config.key.words[0] = key;
        sw_cm_unlisten(&rig[1].cm, &rig[1].listener);
        sw_cm_listen(&rig[1].cm, &rig[1].listener, RIG_SERVICE, UINT64_MAX, &rig[1]);
        ask(0, 7, &req);
        asked();
        same += bucket_in_use(&rig[1].cm) == last;
        last = bucket_in_use(&rig[1].cm);
    }
    assert_true(same < 4);
}

static void numbers__do_not_count(void **state)
{
    enum { COUNT = 60 };
    static struct sw_cm_id ids[COUNT];
    const struct sw_cm_path path = rig_path(0, 1);
    int near = 0;
    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct sw_cm_req req = rig_req(0, 1, 100 + i);
        sw_cm_id_init(&ids[i], NULL);
        assert_int_equal(sw_cm_connect(&rig[0].cm, &ids[i], &path, &req, rig_now), 0);
        assert_int_equal(sw_cm_slot_of(ids[i].local_comm_id), 1);
        for (uint32_t j = 0; j < i; j++) {
            int32_t apart = (int32_t)(ids[i].local_comm_id - ids[j].local_comm_id);
            assert_int_not_equal(apart, 0);
            assert_true(ids[i].request != ids[j].request);
            near += abs(apart) < 64;
            near += ids[i].request - ids[j].request + 64 < 128;
        }
    }
    assert_true(near < 8); /* 0.1 is what chance would make of it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(refused__keep_no_id, rig_setup),
        cmocka_unit_test_setup(refused__are_answered_the_same_way, rig_setup),
        cmocka_unit_test_setup(refused__of_others_are_remembered_in_a_flood, rig_setup),
        cmocka_unit_test_setup(asking__is_bounded_for_one_address_and_not_for_others, rig_setup),
        cmocka_unit_test_setup(asking__of_the_same_host_is_not_counted, rig_setup),
        cmocka_unit_test_setup(drop__forgets_a_request_that_comes_again, rig_setup),
        cmocka_unit_test_setup(timeouts__of_strangers_are_bounded, rig_setup),
        cmocka_unit_test_setup(rep__unheard_is_said_a_few_times, rig_setup),
        cmocka_unit_test_setup(rep__is_said_for_each_req, rig_setup),
        cmocka_unit_test_setup(rep__heard_is_said_as_often_as_the_peer_said, rig_setup),
        cmocka_unit_test_setup(hash__depends_on_the_key, rig_setup),
        cmocka_unit_test_setup(numbers__do_not_count, rig_setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
