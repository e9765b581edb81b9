/* SPDX-License-Identifier: BSD-2-Clause */
/* How connections end, or do not come to be: REJ, DREQ, DREP, timewait, destroyed ids, LAP. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rig.h"

static struct sw_cm_id active, *passive;

static void ask(void)
{
    struct sw_cm_path path = rig_path(0, 1);
    struct sw_cm_req req = rig_req(0, 1, 17);
    sw_cm_id_init(&active, &rig[0]);
    assert_int_equal(sw_cm_connect(&rig[0].cm, &active, &path, &req, rig_now), 0);
}

static void ask_and_hear(void)
{
    ask();
    rig_carry(0, SW_CM_REQ);
    passive = rig_expect(1, SW_CM_EVENT_REQ).id;
}

static void accept_it(void)
{
    struct sw_cm_rep rep = rig_rep(29);
    assert_int_equal(sw_cm_accept(&rig[1].cm, passive, &rep, rig_now), 0);
}

static int setup_connected(void **state)
{
    rig_setup(state);
    rig_connect(&active, &passive, 17, 29);
    return 0;
}

static void disconnect(void)
{
    assert_int_equal(sw_cm_disconnect(&rig[0].cm, &active, "bye", 4, rig_now), 0);
}

static void agree(void)
{
    assert_int_equal(sw_cm_disconnected(&rig[1].cm, passive, "bye too", 8, rig_now), 0);
}

static void reject(const char *why)
{
    assert_int_equal(sw_cm_reject(&rig[1].cm, passive, SW_CM_REASON_CONSUMER, "more", 5, why,
                                  strlen(why) + 1, rig_now),
                     0);
}

static void req__to_nobody_is_rejected(void **state)
{
    (void)state;
    sw_cm_unlisten(&rig[1].cm, &rig[1].listener);
    ask();
    rig_carry(0, SW_CM_REQ);
    struct sw_cm_rej rej = rig_carry(1, SW_CM_REJ).rej;
    assert_int_equal(rej.reason, SW_CM_REASON_SERVICE_ID);
    assert_int_equal(rej.about, SW_CM_ABOUT_REQ);
    assert_int_equal(rej.remote_comm_id, active.local_comm_id);
    assert_int_equal(rig_expect(0, SW_CM_EVENT_REJ).message.rej.reason, SW_CM_REASON_SERVICE_ID);
    assert_int_equal(active.state, SW_CM_IDLE);
    rig_is_empty(0);
    rig_is_empty(1);
}

static void req__that_the_user_has_no_room_for_is_rejected(void **state)
{
    (void)state;
    rig[1].refusal = SW_CM_REASON_NO_RESOURCES;
    ask();
    rig_carry(0, SW_CM_REQ);
    rig_carry(1, SW_CM_REJ);
    assert_int_equal(rig_expect(0, SW_CM_EVENT_REJ).message.rej.reason, SW_CM_REASON_NO_RESOURCES);
    rig_is_empty(1);
}

static void req__dropped_by_the_user_comes_again(void **state)
{
    (void)state;
    rig[1].silent = true; /* its backlog is full */
    ask();
    rig_carry(0, SW_CM_REQ);
    rig_nothing_sent(1);
    rig[1].silent = false;
    rig_until_due(0);
    rig_carry(0, SW_CM_REQ);
    rig_expect(1, SW_CM_EVENT_REQ);
}

static uint16_t reason_for(const struct sw_cm_req *req)
{
    struct sw_cm_path path = rig_path(0, 1);
    sw_cm_id_init(&active, &rig[0]);
    assert_int_equal(sw_cm_connect(&rig[0].cm, &active, &path, req, rig_now), 0);
    rig_carry(0, SW_CM_REQ);
    rig_carry(1, SW_CM_REJ);
    return rig_expect(0, SW_CM_EVENT_REJ).message.rej.reason;
}

static void req__for_another_transport_is_rejected(void **state)
{
    (void)state;
    struct sw_cm_req req = rig_req(0, 1, 17);
    req.service = SW_CM_RD;
    assert_int_equal(reason_for(&req), SW_CM_REASON_TRANSPORT);
    req.service = SW_CM_EXTENDED;
    req.extended_service = 5;
    assert_int_equal(reason_for(&req), SW_CM_REASON_TRANSPORT);
    assert_int_equal(rig[1].id_count, 0);
}

static void req__with_an_impossible_mtu_is_rejected(void **state)
{
    (void)state;
    struct sw_cm_req req = rig_req(0, 1, 17);
    req.path_mtu = 0;
    assert_int_equal(reason_for(&req), SW_CM_REASON_MTU);
    req.path_mtu = 6;
    assert_int_equal(reason_for(&req), SW_CM_REASON_MTU);
}

static void reject__tells_why(void **state)
{
    (void)state;
    ask_and_hear();
    reject("because");
    rig_carry(1, SW_CM_REJ);
    struct rig_event event = rig_expect(0, SW_CM_EVENT_REJ);
    assert_int_equal(event.message.rej.reason, SW_CM_REASON_CONSUMER);
    assert_int_equal(event.message.rej.info_len, 5);
    assert_string_equal((const char *)event.message.rej.info, "more");
    assert_string_equal((const char *)event.message.rej.private_data, "because");
    assert_int_equal(active.state, SW_CM_IDLE);
    rig_is_empty(0);
}

static void reject__lost_is_said_again(void **state)
{
    (void)state;
    ask_and_hear();
    reject("because");
    rig_lose(1, SW_CM_REJ);
    rig_until_due(0);
    rig_carry(0, SW_CM_REQ);
    rig_no_event(1);
    rig_carry(1, SW_CM_REJ);
    rig_expect(0, SW_CM_EVENT_REJ);
}

static void reject__is_remembered_while_the_peer_asks(void **state)
{
    (void)state;
    ask_and_hear();
    reject("because");
    rig_lose(1, SW_CM_REJ);
    for (int i = 0; i < 3; i++) {
        rig_until_due(0);
        rig_carry(0, SW_CM_REQ);
        rig_lose(1, SW_CM_REJ);
    }
    rig_no_event(1);
}

static void reject__of_a_rep_lost_is_said_again(void **state)
{
    (void)state;
    ask_and_hear();
    accept_it();
    rig_carry(1, SW_CM_REP);
    rig_expect(0, SW_CM_EVENT_REP);
    assert_int_equal(
        sw_cm_reject(&rig[0].cm, &active, SW_CM_REASON_CONSUMER, NULL, 0, NULL, 0, rig_now), 0);
    assert_int_equal(rig_lose(0, SW_CM_REJ).rej.about, SW_CM_ABOUT_REP);
    rig_until_due(1);
    rig_carry(1, SW_CM_REP);
    rig_carry(0, SW_CM_REJ);
    rig_expect(1, SW_CM_EVENT_REJ);
    assert_int_equal(passive->state, SW_CM_TIMEWAIT);
}

static void reject__of_ones_own_request_finds_the_peer_by_guid(void **state)
{
    (void)state;
    ask_and_hear();
    assert_int_equal(sw_cm_reject(&rig[0].cm, &active, 3, NULL, 0, NULL, 0, rig_now), 0);
    assert_int_equal(active.state, SW_CM_IDLE);
    struct sw_cm_rej rej = rig_carry(0, SW_CM_REJ).rej;
    assert_int_equal(rej.remote_comm_id, 0);
    assert_int_equal(rej.reason, SW_CM_REASON_TIMEOUT);
    assert_ptr_equal(rig_expect(1, SW_CM_EVENT_REJ).id, passive);
}

static void rej__from_another_address_is_none(void **state)
{
    (void)state;
    ask_and_hear();
    reject("because");
    struct sw_cm_message rej = rig_lose(1, SW_CM_REJ);
    rig_inject(2, 0, &rej);
    rig_no_event(0);
    struct sw_cm_message timeout = {.attribute = SW_CM_REJ,
                                    .rej = {.local_comm_id = active.local_comm_id,
                                            .reason = SW_CM_REASON_TIMEOUT,
                                            .info_len = 8,
                                            .info = {[6] = 0x10}}}; /* the GUID of node 0 */
    rig_inject(2, 1, &timeout);
    rig_no_event(1);
}

static void rej__ends_a_connection_whose_rtu_was_never_heard(void **state)
{
    (void)state;
    ask_and_hear();
    accept_it();
    rig_carry(1, SW_CM_REP);
    rig_expect(0, SW_CM_EVENT_REP);
    assert_int_equal(sw_cm_ready(&rig[0].cm, &active, NULL, 0, rig_now), 0);
    rig_lose(0, SW_CM_RTU);
    sw_cm_id_destroy(&rig[1].cm, passive, rig_now);
    rig_carry(1, SW_CM_REJ);
    rig_expect(0, SW_CM_EVENT_REJ);
    assert_int_equal(active.state, SW_CM_TIMEWAIT);
}

static void disconnect__both_sides_end_in_timewait(void **state)
{
    (void)state;
    disconnect();
    assert_int_equal(rig_carry(0, SW_CM_DREQ).dreq.remote_qpn, 29);
    struct rig_event event = rig_expect(1, SW_CM_EVENT_DREQ);
    assert_string_equal((const char *)event.message.dreq.private_data, "bye");
    agree();
    rig_carry(1, SW_CM_DREP);
    event = rig_expect(0, SW_CM_EVENT_DREP);
    assert_string_equal((const char *)event.message.drep.private_data, "bye too");
    assert_int_equal(active.state, SW_CM_TIMEWAIT);
    assert_int_equal(passive->state, SW_CM_TIMEWAIT);
}

static void timewait__lasts_as_the_path_asks(void **state)
{
    (void)state;
    disconnect();
    rig_carry(0, SW_CM_DREQ);
    agree();
    rig_carry(1, SW_CM_DREP);
    rig_expect(0, SW_CM_EVENT_DREP);
    rig_expect(1, SW_CM_EVENT_DREQ);
    rig_pass(67 * RIG_MS); /* 2^14 * 4.096 us: 67.1 ms */
    rig_no_event(0);
    rig_no_event(1);
    rig_pass(1 * RIG_MS);
    rig_expect(0, SW_CM_EVENT_EXIT);
    rig_expect(1, SW_CM_EVENT_EXIT);
    assert_int_equal(active.state, SW_CM_IDLE);
    rig_is_empty(0);
    rig_is_empty(1);
}

static void timewait__is_bounded_as_configured(void **state)
{
    rig_setup(state);
    rig[0].cm.config.timewait_min_ns = 500 * RIG_MS;
    rig[1].cm.config.timewait_max_ns = 20 * RIG_MS;
    rig_connect(&active, &passive, 17, 29);
    disconnect();
    rig_carry(0, SW_CM_DREQ);
    agree();
    rig_carry(1, SW_CM_DREP);
    assert_int_equal(sw_cm_due_ns(&rig[0].cm) - rig_now, 500 * RIG_MS);
    assert_int_equal(sw_cm_due_ns(&rig[1].cm) - rig_now, 20 * RIG_MS);
}

static void timewait__keeps_the_comm_id_from_being_used_again(void **state)
{
    (void)state;
    disconnect();
    rig_carry(0, SW_CM_DREQ);
    agree();
    rig_carry(1, SW_CM_DREP);
    struct sw_cm_id next;
    struct sw_cm_path path = rig_path(0, 1);
    struct sw_cm_req req = rig_req(0, 1, 18);
    rig[0].cm.comms_drawn = 0; /* as if its number were drawn again */
    sw_cm_id_init(&next, NULL);
    assert_int_equal(sw_cm_connect(&rig[0].cm, &next, &path, &req, rig_now), 0);
    assert_int_not_equal(next.local_comm_id, active.local_comm_id);
    assert_int_equal(sw_cm_slot_of(next.local_comm_id), 1);
}

static void dreq__is_said_again_until_retries_are_over(void **state)
{
    (void)state;
    disconnect();
    for (int i = 0; i <= 3; i++) {
        rig_lose_copies(0, SW_CM_DREQ, i);
        rig_until_due(0);
    }
    rig_nothing_sent(0);
    assert_int_equal(rig_expect(0, SW_CM_EVENT_TIMEOUT).about, SW_CM_DREQ);
    assert_int_equal(active.state, SW_CM_TIMEWAIT);
}

static void dreq__doubled_is_one(void **state)
{
    (void)state;
    disconnect();
    rig_carry_copy(0, SW_CM_DREQ);
    rig_expect(1, SW_CM_EVENT_DREQ);
    rig_carry(0, SW_CM_DREQ);
    rig_no_event(1);
    rig_nothing_sent(1);
}

static void drep__lost_is_said_again_with_its_private_data(void **state)
{
    (void)state;
    disconnect();
    rig_carry(0, SW_CM_DREQ);
    rig_expect(1, SW_CM_EVENT_DREQ);
    agree();
    rig_lose(1, SW_CM_DREP);
    rig_pass(67 * RIG_MS);
    rig_no_event(1);
    sw_cm_tick(&rig[0].cm, rig_now + 70 * RIG_MS);
    rig_carry(0, SW_CM_DREQ);
    rig_no_event(1);
    assert_string_equal((const char *)rig_carry(1, SW_CM_DREP).drep.private_data, "bye too");
    rig_expect(0, SW_CM_EVENT_DREP);
}

static void dreq__about_nothing_known_is_agreed_to(void **state)
{
    (void)state;
    disconnect();
    sw_cm_forget(&rig[1].cm);
    uint64_t transaction = rig_carry(0, SW_CM_DREQ).transaction;
    assert_true(rig_carry(1, SW_CM_DREP).transaction == transaction);
    rig_expect(0, SW_CM_EVENT_DREP);
}

static void dreq__crossing_another_ends_both(void **state)
{
    (void)state;
    disconnect();
    assert_int_equal(sw_cm_disconnect(&rig[1].cm, passive, NULL, 0, rig_now), 0);
    rig_carry(0, SW_CM_DREQ);
    rig_carry(1, SW_CM_DREQ);
    rig_expect(0, SW_CM_EVENT_DREP);
    rig_expect(1, SW_CM_EVENT_DREP);
    rig_carry(0, SW_CM_DREP);
    rig_carry(1, SW_CM_DREP);
    rig_no_event(0);
    rig_no_event(1);
    assert_int_equal(active.state, SW_CM_TIMEWAIT);
    assert_int_equal(passive->state, SW_CM_TIMEWAIT);
}

static void dreq__stands_in_for_a_lost_rtu(void **state)
{
    rig_setup(state);
    ask_and_hear();
    accept_it();
    rig_carry(1, SW_CM_REP);
    rig_expect(0, SW_CM_EVENT_REP);
    assert_int_equal(sw_cm_ready(&rig[0].cm, &active, NULL, 0, rig_now), 0);
    rig_lose(0, SW_CM_RTU);
    disconnect();
    rig_carry(0, SW_CM_DREQ);
    rig_expect(1, SW_CM_EVENT_DREQ);
    agree();
    rig_carry(1, SW_CM_DREP);
    rig_expect(0, SW_CM_EVENT_DREP);
}

static void dreq__for_another_qp_is_none(void **state)
{
    (void)state;
    disconnect();
    struct sw_cm_message dreq = rig_lose(0, SW_CM_DREQ);
    dreq.dreq.remote_qpn++;
    rig_inject(0, 1, &dreq);
    rig_no_event(1);
    rig_nothing_sent(1);
    assert_int_equal(passive->state, SW_CM_ESTABLISHED);
}

static void dreq__from_another_address_is_none(void **state)
{
    (void)state;
    disconnect();
    struct sw_cm_message dreq = rig_lose(0, SW_CM_DREQ);
    rig_inject(2, 1, &dreq);
    rig_no_event(1);
    assert_int_equal(passive->state, SW_CM_ESTABLISHED);
}

static void destroy__of_a_connection_disconnects_it(void **state)
{
    (void)state;
    sw_cm_id_destroy(&rig[0].cm, &active, rig_now);
    assert_int_equal(rig[0].released, 0);
    rig_lose(0, SW_CM_DREQ); /* and goes on, though its user is gone */
    rig_until_due(0);
    rig_carry(0, SW_CM_DREQ);
    rig_expect(1, SW_CM_EVENT_DREQ);
    agree();
    rig_carry(1, SW_CM_DREP);
    assert_int_equal(rig[0].released, 0);
    rig_until_due(0);
    assert_int_equal(rig[0].released, 1);
    rig_no_event(0);
    rig_is_empty(0);
}

static void destroy__of_a_request_rejects_it(void **state)
{
    rig_setup(state);
    ask_and_hear();
    sw_cm_id_destroy(&rig[1].cm, passive, rig_now);
    rig_carry(1, SW_CM_REJ);
    assert_int_equal(rig_expect(0, SW_CM_EVENT_REJ).message.rej.reason, SW_CM_REASON_CONSUMER);
    assert_int_equal(rig[1].released, 1);
    rig_no_event(1);
    rig_is_empty(1);
}

static void destroy__after_dreq_agrees(void **state)
{
    (void)state;
    disconnect();
    rig_carry(0, SW_CM_DREQ);
    sw_cm_id_destroy(&rig[1].cm, passive, rig_now);
    rig_carry(1, SW_CM_DREP);
    rig_expect(0, SW_CM_EVENT_DREP);
}

static void destroy__of_an_idle_id_releases_it_at_once(void **state)
{
    rig_setup(state);
    sw_cm_id_init(&active, NULL);
    sw_cm_id_destroy(&rig[0].cm, &active, rig_now);
    assert_int_equal(rig[0].released, 1);
    rig_nothing_sent(0);
}

static void destroy__within_any_event_is_possible(void **state)
{
    rig_setup(state);
    rig[1].destroys = true;
    ask();
    rig_carry(0, SW_CM_REQ);
    rig_carry(1, SW_CM_REJ);
    rig_expect(0, SW_CM_EVENT_REJ);
    rig[0].destroys = true;
    ask();
    rig[0].destroys = true;
    rig_lose(0, SW_CM_REQ);
    for (int i = 0; i < 4; i++)
        rig_until_due(0);
    rig_expect(0, SW_CM_EVENT_TIMEOUT);
    assert_int_equal(rig[0].released, 1);
    rig_is_empty(0);
}

static void lap__is_refused(void **state)
{
    (void)state;
    struct sw_cm_message lap = {.attribute = SW_CM_LAP,
                                .transaction = 99,
                                .lap = {.local_comm_id = active.local_comm_id,
                                        .remote_comm_id = passive->local_comm_id,
                                        .remote_qpn = 29}};
    rig_inject(0, 1, &lap);
    struct sw_cm_message apr = rig_carry(1, SW_CM_APR);
    assert_int_equal(apr.apr.status, SW_CM_APR_UNSUPPORTED);
    assert_int_equal(apr.apr.remote_comm_id, active.local_comm_id);
    assert_true(apr.transaction == 99);
    lap.lap.remote_comm_id++;
    rig_inject(0, 1, &lap);
    assert_int_equal(rig_carry(1, SW_CM_APR).apr.status, SW_CM_APR_COMM_ID);
    rig_no_event(0);
    rig_no_event(1);
    assert_int_equal(passive->state, SW_CM_ESTABLISHED);
}

static void rej__of_a_dreq_ends_the_connection(void **state)
{
    (void)state;
    disconnect();
    rig_lose(0, SW_CM_DREQ);
    struct sw_cm_message rej = {.attribute = SW_CM_REJ,
                                .rej = {.local_comm_id = passive->local_comm_id,
                                        .remote_comm_id = active.local_comm_id,
                                        .reason = SW_CM_REASON_COMM_ID}};
    rig_inject(1, 0, &rej);
    rig_expect(0, SW_CM_EVENT_DREP);
    assert_int_equal(active.state, SW_CM_TIMEWAIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(req__to_nobody_is_rejected, rig_setup),
        cmocka_unit_test_setup(req__that_the_user_has_no_room_for_is_rejected, rig_setup),
        cmocka_unit_test_setup(req__dropped_by_the_user_comes_again, rig_setup),
        cmocka_unit_test_setup(req__for_another_transport_is_rejected, rig_setup),
        cmocka_unit_test_setup(req__with_an_impossible_mtu_is_rejected, rig_setup),
        cmocka_unit_test_setup(reject__tells_why, rig_setup),
        cmocka_unit_test_setup(reject__lost_is_said_again, rig_setup),
        cmocka_unit_test_setup(reject__is_remembered_while_the_peer_asks, rig_setup),
        cmocka_unit_test_setup(reject__of_a_rep_lost_is_said_again, rig_setup),
        cmocka_unit_test_setup(reject__of_ones_own_request_finds_the_peer_by_guid, rig_setup),
        cmocka_unit_test_setup(rej__from_another_address_is_none, rig_setup),
        cmocka_unit_test_setup(rej__ends_a_connection_whose_rtu_was_never_heard, rig_setup),
        cmocka_unit_test_setup(disconnect__both_sides_end_in_timewait, setup_connected),
        cmocka_unit_test_setup(timewait__lasts_as_the_path_asks, setup_connected),
        cmocka_unit_test(timewait__is_bounded_as_configured),
        cmocka_unit_test_setup(timewait__keeps_the_comm_id_from_being_used_again, setup_connected),
        cmocka_unit_test_setup(dreq__is_said_again_until_retries_are_over, setup_connected),
        cmocka_unit_test_setup(dreq__doubled_is_one, setup_connected),
        cmocka_unit_test_setup(drep__lost_is_said_again_with_its_private_data, setup_connected),
        cmocka_unit_test_setup(dreq__about_nothing_known_is_agreed_to, setup_connected),
        cmocka_unit_test_setup(dreq__crossing_another_ends_both, setup_connected),
        cmocka_unit_test(dreq__stands_in_for_a_lost_rtu),
        cmocka_unit_test_setup(dreq__for_another_qp_is_none, setup_connected),
        cmocka_unit_test_setup(dreq__from_another_address_is_none, setup_connected),
        cmocka_unit_test_setup(rej__of_a_dreq_ends_the_connection, setup_connected),
        cmocka_unit_test_setup(destroy__of_a_connection_disconnects_it, setup_connected),
        cmocka_unit_test(destroy__of_a_request_rejects_it),
        cmocka_unit_test_setup(destroy__after_dreq_agrees, setup_connected),
        cmocka_unit_test(destroy__of_an_idle_id_releases_it_at_once),
        cmocka_unit_test(destroy__within_any_event_is_possible),
        cmocka_unit_test_setup(lap__is_refused, setup_connected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
