/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes that end: what becomes of the connections to them, and what they say themselves. */
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

static void gone__ends_the_connections_to_that_process(void **state)
{
    (void)state;
    struct sw_cm_id second, *other;
    rig_connect(&second, &other, 18, 30);
    active.path.slot = 2;
    second.path.slot = 3;
    sw_cm_gone(&rig[0].cm, 2, rig_now);
    struct rig_event event = rig_expect(0, SW_CM_EVENT_DREQ);
    assert_ptr_equal(event.id, &active);
    assert_false(event.has_message);
    rig_no_event(0);
    assert_int_equal(second.state, SW_CM_ESTABLISHED);
    assert_int_equal(sw_cm_disconnected(&rig[0].cm, &active, NULL, 0, rig_now), 0);
}

static void gone__ends_what_waits_for_that_process(void **state)
{
    rig_setup(state);
    struct sw_cm_path path = rig_path(0, 1);
    struct sw_cm_req req = rig_req(0, 1, 17);
    sw_cm_id_init(&active, &rig[0]);
    assert_int_equal(sw_cm_connect(&rig[0].cm, &active, &path, &req, rig_now), 0);
    rig_carry(0, SW_CM_REQ);
    passive = rig_expect(1, SW_CM_EVENT_REQ).id;
    active.path.slot = passive->path.slot = 9;
    sw_cm_gone(&rig[0].cm, 9, rig_now);
    assert_int_equal(rig_expect(0, SW_CM_EVENT_TIMEOUT).about, SW_CM_REQ);
    sw_cm_gone(&rig[1].cm, 9, rig_now);
    assert_int_equal(rig_expect(1, SW_CM_EVENT_REJ).message.rej.reason, SW_CM_REASON_TIMEOUT);
}

static void gone_far__ends_the_connection_to_that_process(void **state)
{
    (void)state;
    struct sw_cm *cm = &rig[0].cm;
    const uint16_t slot = sw_cm_slot_of(active.remote_comm_id);
    uint8_t gid[16], other[16];
    memcpy(gid, active.path.remote_gid, sizeof(gid));
    memcpy(other, gid, sizeof(other));
    other[15] ^= 1;
    sw_cm_gone_far(cm, &active, other, slot, rig_now);
    sw_cm_gone_far(cm, &active, gid, slot ^ 1, rig_now);
    active.path.slot = 3; /* of this host: another way tells */
    sw_cm_gone_far(cm, &active, gid, slot, rig_now);
    rig_no_event(0);
    active.path.slot = 0;
    sw_cm_gone_far(cm, &active, gid, slot, rig_now);
    struct rig_event event = rig_expect(0, SW_CM_EVENT_DREQ);
    assert_ptr_equal(event.id, &active);
    assert_false(event.has_message);
    sw_cm_gone_far(cm, &active, gid, slot, rig_now);
    rig_no_event(0);
}

static void dreqs_unanswered__are_said_again_to_other_hosts(void **state)
{
    (void)state;
    struct sw_cm_id second, *other;
    struct sw_cm *cm = &rig[0].cm;
    rig_connect(&second, &other, 18, 30);
    second.path.slot = 2; /* a process of this host */
    assert_int_equal(sw_cm_disconnect(cm, &second, NULL, 0, rig_now), 0);
    rig_lose(0, SW_CM_DREQ);
    assert_int_equal(sw_cm_dreqs_unanswered(cm, true), 0);
    assert_int_equal(sw_cm_disconnect(cm, &active, NULL, 0, rig_now), 0);
    rig_lose(0, SW_CM_DREQ);
    assert_int_equal(sw_cm_dreqs_unanswered(cm, false), 1);
    rig_nothing_sent(0);
    assert_int_equal(sw_cm_dreqs_unanswered(cm, true), 1);
    rig_carry(0, SW_CM_DREQ);
    rig_expect(1, SW_CM_EVENT_DREQ);
    assert_int_equal(sw_cm_disconnected(&rig[1].cm, passive, NULL, 0, rig_now), 0);
    rig_carry(1, SW_CM_DREP);
    assert_int_equal(sw_cm_dreqs_unanswered(cm, true), 0);
    rig_nothing_sent(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(gone__ends_the_connections_to_that_process, setup_connected),
        cmocka_unit_test(gone__ends_what_waits_for_that_process),
        cmocka_unit_test_setup(gone_far__ends_the_connection_to_that_process, setup_connected),
        cmocka_unit_test_setup(dreqs_unanswered__are_said_again_to_other_hosts, setup_connected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
