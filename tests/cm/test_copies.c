/* SPDX-License-Identifier: BSD-2-Clause */
/* A REQ that was said more than once, and whose copies get different answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "rig.h"

static struct sw_cm_id active;

/* Node 0 has sent a REQ to node 1, and then again. */
static void ask_twice(void)
{
    struct sw_cm_path path = rig_path(0, 1);
    struct sw_cm_req req = rig_req(0, 1, 17);
    sw_cm_id_init(&active, &rig[0]);
    assert_int_equal(sw_cm_connect(&rig[0].cm, &active, &path, &req, rig_now), 0);
    rig_until_due(0);
}

/* What a process without a listener says to one copy. */
static void refuse_copy(void)
{
    struct sw_cm_message rej = {.attribute = SW_CM_REJ,
                                .transaction = active.transaction,
                                .rej = {.remote_comm_id = active.local_comm_id,
                                        .about = SW_CM_ABOUT_REQ,
                                        .reason = SW_CM_REASON_SERVICE_ID}};
    rig_inject(1, 0, &rej);
}

static void expect_refusal(void)
{
    struct sw_cm_rej rej = rig_expect(0, SW_CM_EVENT_REJ).message.rej;
    assert_int_equal(rej.reason, SW_CM_REASON_SERVICE_ID);
    assert_int_equal(rej.about, SW_CM_ABOUT_REQ);
    assert_int_equal(active.state, SW_CM_IDLE);
    rig_is_empty(0);
}

static struct sw_cm_id *first_copy_comes(void)
{
    rig_carry(0, SW_CM_REQ);
    rig_lose(0, SW_CM_REQ);
    return rig_expect(1, SW_CM_EVENT_REQ).id;
}

static void refused_copy__the_rejection_of_another_counts(void **state)
{
    (void)state;
    ask_twice();
    struct sw_cm_id *passive = first_copy_comes();
    assert_int_equal(
        sw_cm_reject(&rig[1].cm, passive, SW_CM_REASON_CONSUMER, NULL, 0, "because", 8, rig_now),
        0);
    refuse_copy();
    rig_no_event(0);
    rig_carry(1, SW_CM_REJ);
    struct sw_cm_rej rej = rig_expect(0, SW_CM_EVENT_REJ).message.rej;
    assert_int_equal(rej.reason, SW_CM_REASON_CONSUMER);
    assert_string_equal((const char *)rej.private_data, "because");
    rig_no_event(0);
    rig_is_empty(0);
}

static void refused_copy__the_acceptance_of_another_counts(void **state)
{
    (void)state;
    ask_twice();
    struct sw_cm_id *passive = first_copy_comes();
    struct sw_cm_rep rep = rig_rep(29);
    assert_int_equal(sw_cm_accept(&rig[1].cm, passive, &rep, rig_now), 0);
    refuse_copy();
    rig_carry(1, SW_CM_REP);
    rig_expect(0, SW_CM_EVENT_REP);
    assert_int_equal(sw_cm_ready(&rig[0].cm, &active, NULL, 0, rig_now), 0);
    rig_carry(0, SW_CM_RTU);
    rig_expect(1, SW_CM_EVENT_RTU);
    rig_no_event(0);
}

static void refused_copy__another_that_was_taken_gives_time(void **state)
{
    (void)state;
    ask_twice();
    struct sw_cm_id *passive = first_copy_comes();
    refuse_copy();
    assert_int_equal(sw_cm_mra(&rig[1].cm, passive, 20, NULL, 0, rig_now), 0);
    rig_carry(1, SW_CM_MRA);
    rig_expect(0, SW_CM_EVENT_MRA);
    rig_pass(3000 * RIG_MS); /* 4.3 s were asked for */
    rig_no_event(0);
    assert_int_equal(active.state, SW_CM_REQ_SENT);
}

static void refused_copies__all_of_them_are_an_answer(void **state)
{
    (void)state;
    ask_twice();
    rig_lose(0, SW_CM_REQ);
    rig_lose(0, SW_CM_REQ);
    refuse_copy();
    rig_no_event(0);
    refuse_copy();
    expect_refusal();
}

static void refused_copy__is_an_answer_when_no_other_comes(void **state)
{
    (void)state;
    ask_twice();
    rig_lose(0, SW_CM_REQ);
    rig_lose(0, SW_CM_REQ);
    refuse_copy();
    rig_until_due(0);
    expect_refusal();
    rig_nothing_sent(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(refused_copy__the_rejection_of_another_counts, rig_setup),
        cmocka_unit_test_setup(refused_copy__the_acceptance_of_another_counts, rig_setup),
        cmocka_unit_test_setup(refused_copy__another_that_was_taken_gives_time, rig_setup),
        cmocka_unit_test_setup(refused_copies__all_of_them_are_an_answer, rig_setup),
        cmocka_unit_test_setup(refused_copy__is_an_answer_when_no_other_comes, rig_setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
