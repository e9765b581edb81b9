/* SPDX-License-Identifier: BSD-2-Clause */
/* A peer that has forgotten a connection, and whose QPN or communication id comes again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rig.h"

static struct sw_cm_id active, *passive;

static int setup_connected(void **state)
{
    rig_setup(state);
    rig_connect(&active, &passive, 17, 29);
    return 0;
}

static struct sw_cm_message req_of(uint32_t comm_id, uint32_t qpn, uint64_t transaction)
{
    struct sw_cm_message message = {.attribute = SW_CM_REQ, .transaction = transaction};
    message.req = rig_req(0, 1, qpn);
    message.req.local_comm_id = comm_id;
    message.req.local_ca_guid = 0x1000;
    return message;
}

static void old_connection_ends(void)
{
    assert_ptr_equal(rig_expect(1, SW_CM_EVENT_STALE).id, passive);
    rig_carry(1, SW_CM_DREQ); /* the peer, which does not know it, agrees */
    rig_carry(0, SW_CM_DREP);
    assert_ptr_equal(rig_expect(1, SW_CM_EVENT_DREP).id, passive);
    assert_int_equal(passive->state, SW_CM_TIMEWAIT);
}

static void req__with_the_qpn_of_a_connection_is_stale(void **state)
{
    (void)state;
    sw_cm_forget(&rig[0].cm);
    struct sw_cm_message req = req_of(active.local_comm_id + 1, 17, 1);
    rig_inject(0, 1, &req);
    struct sw_cm_rej rej = rig_lose(1, SW_CM_REJ).rej;
    assert_int_equal(rej.reason, SW_CM_REASON_STALE);
    assert_int_equal(rej.remote_comm_id, active.local_comm_id + 1);
    old_connection_ends();
    rig_inject(0, 1, &req); /* and then it is welcome */
    rig_expect(1, SW_CM_EVENT_REQ);
}

static void req__with_the_comm_id_of_a_connection_is_stale(void **state)
{
    (void)state;
    sw_cm_forget(&rig[0].cm);
    struct sw_cm_message req = req_of(active.local_comm_id, 18, 1);
    rig_inject(0, 1, &req);
    assert_int_equal(rig_lose(1, SW_CM_REJ).rej.reason, SW_CM_REASON_STALE);
    old_connection_ends();
}

static void req__with_the_comm_id_of_one_in_timewait_is_new(void **state)
{
    (void)state;
    uint32_t comm_id = active.local_comm_id;
    assert_int_equal(sw_cm_disconnect(&rig[1].cm, passive, NULL, 0, rig_now), 0);
    sw_cm_forget(&rig[0].cm);
    rig_carry(1, SW_CM_DREQ);
    rig_carry(0, SW_CM_DREP);
    rig_expect(1, SW_CM_EVENT_DREP);
    struct sw_cm_message req = req_of(comm_id, 17, 1);
    rig_inject(0, 1, &req);
    struct sw_cm_id *next = rig_expect(1, SW_CM_EVENT_REQ).id;
    assert_ptr_not_equal(next, passive);
    assert_int_equal(next->remote_comm_id, comm_id);
    rig_until_due(1); /* the old one ends and takes nothing of the new one along */
    assert_ptr_equal(rig_expect(1, SW_CM_EVENT_EXIT).id, passive);
    rig_inject(0, 1, &req);
    rig_no_event(1);
}

static void req__with_the_qpn_of_one_that_ends_is_new(void **state)
{
    /* The peer is told of the end, or said it: it may use its QP for another connection. */
    for (int ours = 0; ours < 2; ours++) {
        setup_connected(state);
        if (ours) {
            assert_int_equal(sw_cm_disconnect(&rig[1].cm, passive, NULL, 0, rig_now), 0);
        } else {
            assert_int_equal(sw_cm_disconnect(&rig[0].cm, &active, NULL, 0, rig_now), 0);
            rig_carry(0, SW_CM_DREQ);
            rig_expect(1, SW_CM_EVENT_DREQ);
        }
        struct sw_cm_message req = req_of(active.local_comm_id + 1, 17, 1);
        rig_inject(0, 1, &req);
        rig_expect(1, SW_CM_EVENT_REQ);
    }
}

static void req__with_the_qpn_of_one_rejected_is_new(void **state)
{
    rig_setup(state);
    struct sw_cm_message req = req_of(7, 17, 1), next = req_of(8, 17, 2);
    rig_inject(0, 1, &req);
    assert_int_equal(
        sw_cm_reject(&rig[1].cm, rig_expect(1, SW_CM_EVENT_REQ).id, 28, NULL, 0, NULL, 0, rig_now),
        0);
    rig_inject(0, 1, &next);
    rig_expect(1, SW_CM_EVENT_REQ);
}

static void req__with_the_qpn_of_another_node_is_not_stale(void **state)
{
    (void)state;
    struct sw_cm_message req = req_of(active.local_comm_id, 17, 1);
    req.req.local_ca_guid = 0x1002;
    rig_inject(2, 1, &req);
    rig_expect(1, SW_CM_EVENT_REQ);
    assert_int_equal(passive->state, SW_CM_ESTABLISHED);
}

static void req__from_elsewhere_ends_no_connection(void **state)
{
    (void)state;
    struct sw_cm_message qpn = req_of(active.local_comm_id + 1, 17, 1),
                         comm_id = req_of(active.local_comm_id, 18, 2);
    rig_inject(2, 1, &qpn);
    rig_inject(2, 1, &comm_id);
    assert_int_equal(passive->state, SW_CM_ESTABLISHED);
    rig_nothing_sent(1);
    rig_expect(1, SW_CM_EVENT_REQ);
    rig_expect(1, SW_CM_EVENT_REQ);
}

static void rep__with_the_qpn_of_a_connection_is_stale(void **state)
{
    (void)state;
    struct sw_cm_id next;
    struct sw_cm_path path = rig_path(0, 1);
    struct sw_cm_req req = rig_req(0, 1, 18);
    struct sw_cm_rep rep = rig_rep(29);
    sw_cm_forget(&rig[1].cm);
    assert_int_equal(sw_cm_listen(&rig[1].cm, &rig[1].listener, RIG_SERVICE, UINT64_MAX, &rig[1]),
                     0);
    sw_cm_id_init(&next, NULL);
    assert_int_equal(sw_cm_connect(&rig[0].cm, &next, &path, &req, rig_now), 0);
    rig_carry(0, SW_CM_REQ);
    struct sw_cm_id *passive_next = rig_expect(1, SW_CM_EVENT_REQ).id;
    assert_int_equal(sw_cm_accept(&rig[1].cm, passive_next, &rep, rig_now), 0);
    rig_carry(1, SW_CM_REP);
    assert_int_equal(rig_carry(0, SW_CM_REJ).rej.reason, SW_CM_REASON_STALE);
    struct rig_event event = rig_expect(0, SW_CM_EVENT_REJ);
    assert_ptr_equal(event.id, &next);
    assert_int_equal(event.message.rej.reason, SW_CM_REASON_STALE);
    assert_ptr_equal(rig_expect(0, SW_CM_EVENT_STALE).id, &active);
    rig_carry(0, SW_CM_DREQ);
    assert_ptr_equal(rig_expect(1, SW_CM_EVENT_REJ).id, passive_next);
    rig_carry(1, SW_CM_DREP);
    assert_ptr_equal(rig_expect(0, SW_CM_EVENT_DREP).id, &active);
}

/* Another process had the UDP port, and no processor. */
static void req__that_comes_late_is_of_no_new_connection(void **state)
{
    (void)state;
    struct sw_cm_message req = req_of(active.local_comm_id, 17, passive->request);
    req.req.local_ca_guid = passive->remote_ca_guid;
    assert_int_equal(sw_cm_disconnect(&rig[0].cm, &active, NULL, 0, rig_now), 0);
    rig_carry(0, SW_CM_DREQ);
    rig_expect(1, SW_CM_EVENT_DREQ);
    assert_int_equal(sw_cm_disconnected(&rig[1].cm, passive, NULL, 0, rig_now), 0);
    rig_carry(1, SW_CM_DREP);
    rig_until_due(1);
    assert_ptr_equal(rig_expect(1, SW_CM_EVENT_EXIT).id, passive);
    const uint64_t duplicates = rig[1].cm.counts.duplicates[0];
    rig_inject(0, 1, &req);
    rig_no_event(1);
    rig_nothing_sent(1);
    assert_int_equal(rig[1].cm.counts.duplicates[0], duplicates + 1);
    req.transaction++; /* the same numbers, but the peer asks anew */
    rig_inject(0, 1, &req);
    rig_expect(1, SW_CM_EVENT_REQ);
}

/* Nobody's numbers are kept for ever. */
static void req__with_the_numbers_of_one_long_over_is_new(void **state)
{
    (void)state;
    struct sw_cm_message req = req_of(active.local_comm_id, 17, passive->request);
    req.req.local_ca_guid = passive->remote_ca_guid;
    assert_int_equal(sw_cm_disconnect(&rig[1].cm, passive, NULL, 0, rig_now), 0);
    rig_carry(1, SW_CM_DREQ);
    rig_expect(0, SW_CM_EVENT_DREQ);
    assert_int_equal(sw_cm_disconnected(&rig[0].cm, &active, NULL, 0, rig_now), 0);
    rig_carry(0, SW_CM_DREP);
    rig_expect(1, SW_CM_EVENT_DREP);
    rig_until_due(1);
    assert_ptr_equal(rig_expect(1, SW_CM_EVENT_EXIT).id, passive);
    rig_pass(11000 * RIG_MS);
    rig_inject(0, 1, &req);
    rig_expect(1, SW_CM_EVENT_REQ);
}

static void stale__user_may_destroy_everything(void **state)
{
    (void)state;
    rig[1].destroys = true;
    struct sw_cm_message req = req_of(active.local_comm_id + 1, 17, 1);
    rig_inject(0, 1, &req);
    rig_expect(1, SW_CM_EVENT_STALE);
    rig_lose(1, SW_CM_REJ);
    rig_carry(1, SW_CM_DREQ);
    rig_nothing_sent(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(req__with_the_qpn_of_a_connection_is_stale, setup_connected),
        cmocka_unit_test_setup(req__with_the_comm_id_of_a_connection_is_stale, setup_connected),
        cmocka_unit_test_setup(req__with_the_comm_id_of_one_in_timewait_is_new, setup_connected),
        cmocka_unit_test(req__with_the_qpn_of_one_that_ends_is_new),
        cmocka_unit_test(req__with_the_qpn_of_one_rejected_is_new),
        cmocka_unit_test_setup(req__with_the_qpn_of_another_node_is_not_stale, setup_connected),
        cmocka_unit_test_setup(req__from_elsewhere_ends_no_connection, setup_connected),
        cmocka_unit_test_setup(rep__with_the_qpn_of_a_connection_is_stale, setup_connected),
        cmocka_unit_test_setup(req__that_comes_late_is_of_no_new_connection, setup_connected),
        cmocka_unit_test_setup(req__with_the_numbers_of_one_long_over_is_new, setup_connected),
        cmocka_unit_test_setup(stale__user_may_destroy_everything, setup_connected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
