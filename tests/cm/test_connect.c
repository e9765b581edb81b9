/* SPDX-License-Identifier: BSD-2-Clause */
/* How a connection comes to be: REQ, MRA, REP, RTU, and each of them lost or doubled. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rig.h"

static struct sw_cm_id active;

/* Node 0 has sent a REQ to node 1. */
static void ask(void)
{
    struct sw_cm_path path = rig_path(0, 1);
    struct sw_cm_req req = rig_req(0, 1, 17);
    sw_cm_id_init(&active, &rig[0]);
    assert_int_equal(sw_cm_connect(&rig[0].cm, &active, &path, &req, rig_now), 0);
}

/* ... which has come. */
static struct sw_cm_id *ask_and_hear(void)
{
    ask();
    rig_carry(0, SW_CM_REQ);
    return rig_expect(1, SW_CM_EVENT_REQ).id;
}

static void accept_it(struct sw_cm_id *passive)
{
    struct sw_cm_rep rep = rig_rep(29);
    assert_int_equal(sw_cm_accept(&rig[1].cm, passive, &rep, rig_now), 0);
}

static void be_ready(void)
{
    assert_int_equal(sw_cm_ready(&rig[0].cm, &active, NULL, 0, rig_now), 0);
}

static void connect__tells_each_side_what_the_other_said(void **state)
{
    (void)state;
    ask();
    struct sw_cm_req req = rig_carry(0, SW_CM_REQ).req;
    assert_int_equal(req.local_comm_id, active.local_comm_id);
    assert_int_equal(sw_cm_slot_of(req.local_comm_id), 1);
    assert_true(req.local_ca_guid == 0x1000);
    struct rig_event event = rig_expect(1, SW_CM_EVENT_REQ);
    struct sw_cm_id *passive = event.id;
    assert_int_equal(event.message.req.local_qpn, 17);
    assert_string_equal((const char *)event.message.req.private_data, "from the active");
    assert_int_equal(passive->remote_qpn, 17);
    assert_false(passive->active);
    accept_it(passive);
    struct sw_cm_rep rep = rig_carry(1, SW_CM_REP).rep;
    assert_int_equal(rep.remote_comm_id, req.local_comm_id);
    assert_int_equal(sw_cm_slot_of(rep.local_comm_id), 2);
    assert_true(rep.local_ca_guid == 0x1001);
    event = rig_expect(0, SW_CM_EVENT_REP);
    assert_ptr_equal(event.id, &active);
    assert_string_equal((const char *)event.message.rep.private_data, "from the passive");
    assert_int_equal(active.remote_qpn, 29);
    assert_int_equal(sw_cm_ready(&rig[0].cm, &active, "ready", 6, rig_now), 0);
    rig_carry(0, SW_CM_RTU);
    event = rig_expect(1, SW_CM_EVENT_RTU);
    assert_string_equal((const char *)event.message.rtu.private_data, "ready");
    assert_int_equal(active.state, SW_CM_ESTABLISHED);
    assert_int_equal(passive->state, SW_CM_ESTABLISHED);
    assert_true(sw_cm_due_ns(&rig[0].cm) == UINT64_MAX && sw_cm_due_ns(&rig[1].cm) == UINT64_MAX);
}

static void connect__answers_keep_the_transaction(void **state)
{
    (void)state;
    ask();
    uint64_t transaction = rig_carry(0, SW_CM_REQ).transaction;
    accept_it(rig_expect(1, SW_CM_EVENT_REQ).id);
    assert_true(rig_carry(1, SW_CM_REP).transaction == transaction);
    rig_expect(0, SW_CM_EVENT_REP);
    be_ready();
    assert_true(rig_carry(0, SW_CM_RTU).transaction == transaction);
}

static void connect__asks_again_until_retries_are_over(void **state)
{
    (void)state;
    ask();
    uint64_t started = rig_now;
    for (int i = 0; i <= 3; i++) {
        rig_lose_copies(0, SW_CM_REQ, i);
        rig_until_due(0);
    }
    /* 67.1 ms for the peer, as much for the way there and back. */
    assert_in_range(rig_now - started, 4 * 134 * RIG_MS, 4 * 135 * RIG_MS);
    struct rig_event event = rig_expect(0, SW_CM_EVENT_TIMEOUT);
    assert_int_equal(event.about, SW_CM_REQ);
    assert_int_equal(active.state, SW_CM_IDLE);
    /* The peer is told, in case it comes to life: it knows the id by the GUID alone. */
    struct sw_cm_rej rej = rig_lose(0, SW_CM_REJ).rej;
    assert_int_equal(rej.reason, SW_CM_REASON_TIMEOUT);
    assert_int_equal(rej.info_len, 8);
    rig_is_empty(0);
}

static void connect__hurries_as_configured(void **state)
{
    (void)state;
    rig_init(10 * RIG_MS);
    ask();
    static const uint64_t waits_ms[] = {10, 20, 40, 80};
    for (int i = 0; i < 4; i++) {
        rig_lose_copies(0, SW_CM_REQ, i);
        assert_int_equal(sw_cm_due_ns(&rig[0].cm) - rig_now, waits_ms[i] * RIG_MS);
        rig_until_due(0);
    }
    rig_lose_copies(0, SW_CM_REQ, 4); /* and from here as the protocol has it */
    assert_in_range(sw_cm_due_ns(&rig[0].cm) - rig_now, 134 * RIG_MS, 135 * RIG_MS);
}

static void req__doubled_is_one_request(void **state)
{
    (void)state;
    ask();
    rig_carry_copy(0, SW_CM_REQ);
    rig_expect(1, SW_CM_EVENT_REQ);
    rig_carry(0, SW_CM_REQ);
    rig_no_event(1);
    rig_nothing_sent(1); /* its user is asked, and will say */
    assert_int_equal(rig[1].cm.counts.duplicates[SW_CM_REQ - SW_CM_REQ], 1);
}

static void req__doubled_hears_the_mra_again(void **state)
{
    (void)state;
    ask();
    rig_carry_copy(0, SW_CM_REQ);
    struct sw_cm_id *passive = rig_expect(1, SW_CM_EVENT_REQ).id;
    assert_int_equal(sw_cm_mra(&rig[1].cm, passive, 20, NULL, 0, rig_now), 0);
    rig_lose(1, SW_CM_MRA);
    rig_carry(0, SW_CM_REQ);
    rig_carry(1, SW_CM_MRA);
    rig_expect(0, SW_CM_EVENT_MRA);
}

static void req__doubled_hears_the_rep_again(void **state)
{
    (void)state;
    ask();
    rig_carry_copy(0, SW_CM_REQ);
    accept_it(rig_expect(1, SW_CM_EVENT_REQ).id);
    rig_lose(1, SW_CM_REP);
    rig_carry(0, SW_CM_REQ);
    rig_carry(1, SW_CM_REP);
    rig_expect(0, SW_CM_EVENT_REP);
}

static void req__late_after_rtu_changes_nothing(void **state)
{
    (void)state;
    struct sw_cm_id *passive = ask_and_hear();
    struct sw_cm_message late = {.attribute = SW_CM_REQ, .transaction = active.transaction};
    late.req = rig_req(0, 1, 17);
    late.req.local_comm_id = active.local_comm_id;
    late.req.local_ca_guid = 0x1000;
    accept_it(passive);
    rig_carry(1, SW_CM_REP);
    be_ready();
    rig_carry(0, SW_CM_RTU);
    rig_expect(1, SW_CM_EVENT_RTU);
    rig_inject(0, 1, &late);
    rig_nothing_sent(1);
    rig_no_event(1);
    assert_int_equal(passive->state, SW_CM_ESTABLISHED);
}

static void mra__gives_the_peer_time(void **state)
{
    (void)state;
    struct sw_cm_id *passive = ask_and_hear();
    assert_int_equal(sw_cm_mra(&rig[1].cm, passive, 20, "wait", 5, rig_now), 0); /* 4.3 s */
    rig_carry(1, SW_CM_MRA);
    assert_string_equal((const char *)rig_expect(0, SW_CM_EVENT_MRA).message.mra.private_data,
                        "wait");
    rig_pass(4290 * RIG_MS);
    rig_nothing_sent(0);
    rig_no_event(0);
    rig_pass(10 * RIG_MS);
    rig_lose(0, SW_CM_REQ); /* it took too long: asked again, the usual number of times */
    while (active.state == SW_CM_REQ_SENT)
        rig_until_due(0);
    rig_expect(0, SW_CM_EVENT_TIMEOUT);
    assert_in_range(rig_now, 1000 * RIG_MS + 4290 * RIG_MS + 4 * 134 * RIG_MS,
                    1000 * RIG_MS + 4300 * RIG_MS + 4 * 135 * RIG_MS);
}

static void mra__no_longer_than_a_bound(void **state)
{
    (void)state;
    struct sw_cm_id *passive = ask_and_hear();
    assert_int_equal(sw_cm_mra(&rig[1].cm, passive, 31, NULL, 0, rig_now), 0); /* 2.4 hours */
    rig_carry(1, SW_CM_MRA);
    rig_pass(SW_CM_WAIT_MAX_NS);
    rig_lose(0, SW_CM_REQ);
}

static void mra__a_second_one_gives_no_more(void **state)
{
    (void)state;
    struct sw_cm_id *passive = ask_and_hear();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sw_cm_mra(&rig[1].cm, passive, 18, NULL, 0, rig_now), 0);
        rig_carry(1, SW_CM_MRA);
    }
    rig_expect(0, SW_CM_EVENT_MRA);
    rig_no_event(0);
}

static void mra__of_a_rep_gives_the_active_side_time(void **state)
{
    (void)state;
    struct sw_cm_id *passive = ask_and_hear();
    accept_it(passive);
    rig_carry(1, SW_CM_REP);
    rig_expect(0, SW_CM_EVENT_REP);
    assert_int_equal(sw_cm_mra(&rig[0].cm, &active, 20, NULL, 0, rig_now), 0);
    rig_carry(0, SW_CM_MRA);
    assert_ptr_equal(rig_expect(1, SW_CM_EVENT_MRA).id, passive);
    rig_pass(4000 * RIG_MS);
    rig_nothing_sent(1);
    be_ready();
    rig_carry(0, SW_CM_RTU);
    rig_expect(1, SW_CM_EVENT_RTU);
}

static void rep__is_said_again_until_retries_are_over(void **state)
{
    (void)state;
    struct sw_cm_id *passive = ask_and_hear();
    accept_it(passive);
    rig_carry(1, SW_CM_REP);
    rig_expect(0, SW_CM_EVENT_REP); /* and its user takes his time */
    for (int i = 1; i < SW_CM_REPS_EACH; i++) {
        rig_until_due(1);
        rig_carry(1, SW_CM_REP);
    }
    rig_until_due(1);
    assert_int_equal(rig_expect(1, SW_CM_EVENT_TIMEOUT).about, SW_CM_REP);
    assert_int_equal(passive->state, SW_CM_TIMEWAIT);
    rig_carry(1, SW_CM_REJ);
    assert_int_equal(rig_expect(0, SW_CM_EVENT_REJ).message.rej.reason, SW_CM_REASON_TIMEOUT);
    assert_int_equal(active.state, SW_CM_TIMEWAIT);
    rig_until_due(1);
    rig_expect(1, SW_CM_EVENT_EXIT);
    rig_is_empty(1);
}

static void rtu__after_the_peer_gave_up_is_rejected_again(void **state)
{
    (void)state;
    struct sw_cm_id *passive = ask_and_hear();
    accept_it(passive);
    rig_carry(1, SW_CM_REP);
    rig_expect(0, SW_CM_EVENT_REP);
    while (passive->state == SW_CM_REP_SENT)
        rig_until_due(1);
    while (rig[1].out_count > 1)
        rig_lose(1, SW_CM_REP);
    rig_lose(1, SW_CM_REJ);
    be_ready();
    rig_carry(0, SW_CM_RTU);
    rig_carry(1, SW_CM_REJ);
    rig_expect(0, SW_CM_EVENT_REJ);
    assert_int_equal(active.state, SW_CM_TIMEWAIT);
}

static void rep__doubled_is_one_answer(void **state)
{
    (void)state;
    struct sw_cm_id *passive = ask_and_hear();
    accept_it(passive);
    rig_carry_copy(1, SW_CM_REP);
    rig_expect(0, SW_CM_EVENT_REP);
    rig_carry(1, SW_CM_REP);
    rig_no_event(0);
    rig_nothing_sent(0);
}

static void rep__doubled_hears_the_mra_again(void **state)
{
    (void)state;
    struct sw_cm_id *passive = ask_and_hear();
    accept_it(passive);
    rig_carry_copy(1, SW_CM_REP);
    assert_int_equal(sw_cm_mra(&rig[0].cm, &active, 20, NULL, 0, rig_now), 0);
    rig_lose(0, SW_CM_MRA);
    rig_carry(1, SW_CM_REP);
    rig_carry(0, SW_CM_MRA);
    rig_expect(1, SW_CM_EVENT_MRA);
}

static void rep__to_an_id_that_is_gone_is_rejected(void **state)
{
    (void)state;
    struct sw_cm_id *passive = ask_and_hear();
    sw_cm_id_destroy(&rig[0].cm, &active, rig_now);
    assert_int_equal(rig[0].released, 1);
    rig_lose(0, SW_CM_REJ);
    accept_it(passive);
    rig_carry(1, SW_CM_REP);
    struct sw_cm_rej rej = rig_carry(0, SW_CM_REJ).rej;
    assert_int_equal(rej.reason, SW_CM_REASON_COMM_ID);
    assert_int_equal(rej.about, SW_CM_ABOUT_REP);
    rig_expect(1, SW_CM_EVENT_REJ);
    assert_int_equal(passive->state, SW_CM_TIMEWAIT);
}

static void rep__from_another_address_is_none(void **state)
{
    (void)state;
    struct sw_cm_id *passive = ask_and_hear();
    accept_it(passive);
    struct sw_cm_message rep = rig_lose(1, SW_CM_REP);
    rig_inject(2, 0, &rep);
    rig_no_event(0);
    assert_int_equal(active.state, SW_CM_REQ_SENT);
}

static void rtu__lost_is_said_again_when_the_rep_comes_again(void **state)
{
    (void)state;
    struct sw_cm_id *passive = ask_and_hear();
    accept_it(passive);
    rig_carry(1, SW_CM_REP);
    be_ready();
    rig_lose(0, SW_CM_RTU);
    rig_until_due(1);
    rig_carry(1, SW_CM_REP);
    rig_carry(0, SW_CM_RTU);
    rig_expect(1, SW_CM_EVENT_RTU);
    rig_expect(0, SW_CM_EVENT_REP);
    rig_no_event(0);
}

static void rtu__doubled_is_one(void **state)
{
    (void)state;
    struct sw_cm_id *passive = ask_and_hear();
    accept_it(passive);
    rig_carry(1, SW_CM_REP);
    be_ready();
    rig_carry_copy(0, SW_CM_RTU);
    rig_expect(1, SW_CM_EVENT_RTU);
    rig_carry(0, SW_CM_RTU);
    rig_no_event(1);
    rig_nothing_sent(1);
}

static void established__stands_in_for_a_lost_rtu(void **state)
{
    (void)state;
    struct sw_cm_id *passive = ask_and_hear();
    accept_it(passive);
    rig_carry(1, SW_CM_REP);
    be_ready();
    assert_int_equal(sw_cm_established(&rig[1].cm, passive, rig_now), 0);
    struct rig_event event = rig_expect(1, SW_CM_EVENT_RTU);
    assert_false(event.has_message);
    assert_int_equal(passive->state, SW_CM_ESTABLISHED);
    assert_true(sw_cm_due_ns(&rig[1].cm) == UINT64_MAX);
    rig_carry(0, SW_CM_RTU); /* it was late only */
    assert_int_equal(sw_cm_established(&rig[1].cm, passive, rig_now), 0);
    rig_no_event(1);
}

static void rtu__to_an_id_that_is_gone_is_rejected(void **state)
{
    (void)state;
    struct sw_cm_id *passive = ask_and_hear();
    accept_it(passive);
    rig_carry(1, SW_CM_REP);
    rig_expect(0, SW_CM_EVENT_REP);
    be_ready();
    sw_cm_forget(&rig[1].cm);
    rig_carry(0, SW_CM_RTU);
    assert_int_equal(rig_carry(1, SW_CM_REJ).rej.reason, SW_CM_REASON_COMM_ID);
    rig_expect(0, SW_CM_EVENT_REJ);
    assert_int_equal(active.state, SW_CM_TIMEWAIT);
}

static void accept__clamps_the_initiator_depth(void **state)
{
    (void)state;
    struct sw_cm_id *passive = ask_and_hear();
    struct sw_cm_rep rep = rig_rep(29);
    rep.initiator_depth = 100;
    assert_int_equal(sw_cm_accept(&rig[1].cm, passive, &rep, rig_now), 0);
    assert_int_equal(rig_carry(1, SW_CM_REP).rep.initiator_depth, 4);
}

static void accept__says_that_alternate_paths_are_not_supported(void **state)
{
    (void)state;
    struct sw_cm_path path = rig_path(0, 1);
    struct sw_cm_req req = rig_req(0, 1, 17);
    req.alternate = req.primary;
    sw_cm_id_init(&active, NULL);
    assert_int_equal(sw_cm_connect(&rig[0].cm, &active, &path, &req, rig_now), 0);
    rig_carry(0, SW_CM_REQ);
    accept_it(rig_expect(1, SW_CM_EVENT_REQ).id);
    assert_int_equal(rig_carry(1, SW_CM_REP).rep.failover_accepted, 1);
}

static void accept__of_an_xrc_request_goes_by_the_eecn(void **state)
{
    (void)state;
    struct sw_cm_path path = rig_path(0, 1);
    struct sw_cm_req req = rig_req(0, 1, 17);
    req.service = SW_CM_EXTENDED;
    req.extended_service = SW_CM_EXTENDED_XRC;
    sw_cm_id_init(&active, NULL);
    assert_int_equal(sw_cm_connect(&rig[0].cm, &active, &path, &req, rig_now), 0);
    rig_carry(0, SW_CM_REQ);
    struct sw_cm_id *passive = rig_expect(1, SW_CM_EVENT_REQ).id;
    struct sw_cm_rep rep = rig_rep(0);
    rep.local_eecn = 31;
    assert_int_equal(sw_cm_accept(&rig[1].cm, passive, &rep, rig_now), 0);
    rig_carry(1, SW_CM_REP);
    assert_int_equal(active.remote_qpn, 31);
    be_ready();
    rig_carry(0, SW_CM_RTU);
    assert_int_equal(sw_cm_disconnect(&rig[0].cm, &active, NULL, 0, rig_now), 0);
    assert_int_equal(rig_carry(0, SW_CM_DREQ).dreq.remote_qpn, 31);
    rig_expect(1, SW_CM_EVENT_RTU);
    rig_expect(1, SW_CM_EVENT_DREQ);
}

static void calls__are_refused_in_other_states(void **state)
{
    (void)state;
    struct sw_cm *cm = &rig[0].cm;
    struct sw_cm_path path = rig_path(0, 1);
    struct sw_cm_req req = rig_req(0, 1, 17);
    struct sw_cm_rep rep = rig_rep(29);
    struct sw_cm_sidr_rep answer = {.qpn = 1};
    sw_cm_id_init(&active, NULL);
    assert_int_equal(sw_cm_mra(cm, &active, 1, NULL, 0, rig_now), -EINVAL);
    assert_int_equal(sw_cm_accept(cm, &active, &rep, rig_now), -EINVAL);
    assert_int_equal(sw_cm_ready(cm, &active, NULL, 0, rig_now), -EINVAL);
    assert_int_equal(sw_cm_reject(cm, &active, 28, NULL, 0, NULL, 0, rig_now), -EINVAL);
    assert_int_equal(sw_cm_disconnect(cm, &active, NULL, 0, rig_now), -EINVAL);
    assert_int_equal(sw_cm_disconnected(cm, &active, NULL, 0, rig_now), -EINVAL);
    assert_int_equal(sw_cm_answer(cm, &active, &answer, rig_now), -EINVAL);
    rig_nothing_sent(0);
    ask();
    assert_int_equal(sw_cm_connect(cm, &active, &path, &req, rig_now), -EINVAL);
    assert_int_equal(sw_cm_ready(cm, &active, NULL, 0, rig_now), -EINVAL);
    assert_int_equal(sw_cm_disconnect(cm, &active, NULL, 0, rig_now), -EINVAL);
    rig_carry(0, SW_CM_REQ);
    rig_nothing_sent(0);
}

static void calls__take_private_data_up_to_its_limit(void **state)
{
    (void)state;
    static const uint8_t data[256] = {1};
    struct sw_cm_id *passive = ask_and_hear();
    struct sw_cm *ours = &rig[0].cm, *theirs = &rig[1].cm;
    assert_int_equal(sw_cm_mra(theirs, passive, 1, data, 223, rig_now), -EINVAL);
    assert_int_equal(sw_cm_mra(theirs, passive, 1, NULL, 1, rig_now), -EINVAL);
    assert_int_equal(sw_cm_mra(theirs, passive, 1, data, 222, rig_now), 0);
    assert_int_equal(sw_cm_reject(theirs, passive, 28, data, 73, NULL, 0, rig_now), -EINVAL);
    assert_int_equal(sw_cm_reject(theirs, passive, 28, NULL, 0, data, 149, rig_now), -EINVAL);
    assert_int_equal(passive->state, SW_CM_REQ_RCVD);
    rig_lose(1, SW_CM_MRA);
    accept_it(passive);
    rig_carry(1, SW_CM_REP);
    assert_int_equal(sw_cm_ready(ours, &active, data, 225, rig_now), -EINVAL);
    assert_int_equal(sw_cm_ready(ours, &active, data, 224, rig_now), 0);
    rig_carry(0, SW_CM_RTU);
    assert_int_equal(sw_cm_disconnect(ours, &active, data, 221, rig_now), -EINVAL);
    assert_int_equal(sw_cm_disconnect(ours, &active, data, 220, rig_now), 0);
    rig_carry(0, SW_CM_DREQ);
    assert_int_equal(sw_cm_disconnected(theirs, passive, data, 225, rig_now), -EINVAL);
    assert_int_equal(sw_cm_disconnected(theirs, passive, data, 224, rig_now), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(connect__tells_each_side_what_the_other_said, rig_setup),
        cmocka_unit_test_setup(connect__answers_keep_the_transaction, rig_setup),
        cmocka_unit_test_setup(connect__asks_again_until_retries_are_over, rig_setup),
        cmocka_unit_test_setup(connect__hurries_as_configured, rig_setup),
        cmocka_unit_test_setup(req__doubled_is_one_request, rig_setup),
        cmocka_unit_test_setup(req__doubled_hears_the_mra_again, rig_setup),
        cmocka_unit_test_setup(req__doubled_hears_the_rep_again, rig_setup),
        cmocka_unit_test_setup(req__late_after_rtu_changes_nothing, rig_setup),
        cmocka_unit_test_setup(mra__gives_the_peer_time, rig_setup),
        cmocka_unit_test_setup(mra__no_longer_than_a_bound, rig_setup),
        cmocka_unit_test_setup(mra__a_second_one_gives_no_more, rig_setup),
        cmocka_unit_test_setup(mra__of_a_rep_gives_the_active_side_time, rig_setup),
        cmocka_unit_test_setup(rep__is_said_again_until_retries_are_over, rig_setup),
        cmocka_unit_test_setup(rtu__after_the_peer_gave_up_is_rejected_again, rig_setup),
        cmocka_unit_test_setup(rep__doubled_is_one_answer, rig_setup),
        cmocka_unit_test_setup(rep__doubled_hears_the_mra_again, rig_setup),
        cmocka_unit_test_setup(rep__to_an_id_that_is_gone_is_rejected, rig_setup),
        cmocka_unit_test_setup(rep__from_another_address_is_none, rig_setup),
        cmocka_unit_test_setup(rtu__lost_is_said_again_when_the_rep_comes_again, rig_setup),
        cmocka_unit_test_setup(rtu__doubled_is_one, rig_setup),
        cmocka_unit_test_setup(established__stands_in_for_a_lost_rtu, rig_setup),
        cmocka_unit_test_setup(rtu__to_an_id_that_is_gone_is_rejected, rig_setup),
        cmocka_unit_test_setup(accept__clamps_the_initiator_depth, rig_setup),
        cmocka_unit_test_setup(accept__says_that_alternate_paths_are_not_supported, rig_setup),
        cmocka_unit_test_setup(accept__of_an_xrc_request_goes_by_the_eecn, rig_setup),
        cmocka_unit_test_setup(calls__are_refused_in_other_states, rig_setup),
        cmocka_unit_test_setup(calls__take_private_data_up_to_its_limit, rig_setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
