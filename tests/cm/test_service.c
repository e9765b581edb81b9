/* SPDX-License-Identifier: BSD-2-Clause */
/* Listeners and their services; SIDR; the process a MAD is for; the timers and tables behind it
 * all. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rig.h"

static struct sw_cm_id active;

static void listen__one_listener_a_service(void **state)
{
    (void)state;
    struct sw_cm_listener other;
    struct sw_cm *cm = &rig[0].cm;
    assert_int_equal(sw_cm_listen(cm, &other, RIG_SERVICE, UINT64_MAX, NULL), -EADDRINUSE);
    assert_int_equal(sw_cm_listen(cm, &other, RIG_SERVICE + 1, UINT64_MAX, NULL), 0);
    sw_cm_unlisten(cm, &other);
    sw_cm_unlisten(cm, &other);
    assert_int_equal(sw_cm_listen(cm, &other, RIG_SERVICE + 1, UINT64_MAX, NULL), 0);
}

static void listen__by_mask_gets_what_no_other_does(void **state)
{
    (void)state;
    struct sw_cm_listener wide, same;
    struct sw_cm *cm = &rig[1].cm;
    struct sw_cm_path path = rig_path(0, 1);
    struct sw_cm_req req = rig_req(0, 1, 17);
    assert_int_equal(sw_cm_listen(cm, &wide, 0x01060000, ~0xffffull, &rig[1]), 0);
    assert_int_equal(sw_cm_listen(cm, &same, 0x01061111, ~0xfffull, &rig[1]), -EADDRINUSE);
    assert_int_equal(sw_cm_listen(cm, &same, 0x01070000, ~0xffffull, &rig[1]), 0);
    req.service_id = 0x01069999;
    sw_cm_id_init(&active, NULL);
    assert_int_equal(sw_cm_connect(&rig[0].cm, &active, &path, &req, rig_now), 0);
    rig_carry(0, SW_CM_REQ);
    assert_true(rig_expect(1, SW_CM_EVENT_REQ).id->service_id == 0x01069999);
    sw_cm_unlisten(cm, &wide);
    req.local_qpn = 18;
    sw_cm_id_init(&active, NULL);
    assert_int_equal(sw_cm_connect(&rig[0].cm, &active, &path, &req, rig_now), 0);
    rig_carry(0, SW_CM_REQ);
    rig_carry(1, SW_CM_REJ);
}

static void resolve(void)
{
    struct sw_cm_path path = rig_path(0, 1);
    struct sw_cm_sidr_req req = {
        .pkey = 0xffff, .service_id = RIG_SERVICE, .private_data = "who are you"};
    sw_cm_id_init(&active, NULL);
    assert_int_equal(sw_cm_resolve(&rig[0].cm, &active, &path, &req, 100 * RIG_MS, 6, rig_now), 0);
}

static void answer(struct sw_cm_id *id)
{
    struct sw_cm_sidr_rep rep = {.qpn = 99, .qkey = 0x1234, .private_data = "your friend"};
    assert_int_equal(sw_cm_answer(&rig[1].cm, id, &rep, rig_now), 0);
}

static void sidr__gets_its_answer(void **state)
{
    (void)state;
    resolve();
    rig_carry(0, SW_CM_SIDR_REQ);
    struct rig_event event = rig_expect(1, SW_CM_EVENT_SIDR_REQ);
    assert_string_equal((const char *)event.message.sidr_req.private_data, "who are you");
    answer(event.id);
    rig_carry(1, SW_CM_SIDR_REP);
    event = rig_expect(0, SW_CM_EVENT_SIDR_REP);
    assert_int_equal(event.message.sidr_rep.qpn, 99);
    assert_int_equal(event.message.sidr_rep.qkey, 0x1234);
    assert_true(event.message.sidr_rep.service_id == RIG_SERVICE);
    assert_string_equal((const char *)event.message.sidr_rep.private_data, "your friend");
    assert_int_equal(active.state, SW_CM_IDLE);
    rig_is_empty(0);
    rig_until_due(1);
    rig_expect(1, SW_CM_EVENT_EXIT);
    rig_is_empty(1);
}

static void sidr__asks_again_until_retries_are_over(void **state)
{
    (void)state;
    resolve();
    for (int i = 0; i <= 6; i++) {
        rig_lose_copies(0, SW_CM_SIDR_REQ, i);
        assert_int_equal(sw_cm_due_ns(&rig[0].cm) - rig_now, 100 * RIG_MS);
        rig_until_due(0);
    }
    assert_int_equal(rig_expect(0, SW_CM_EVENT_TIMEOUT).about, SW_CM_SIDR_REQ);
    rig_nothing_sent(0);
    rig_is_empty(0);
}

static void sidr__doubled_is_one_and_hears_the_answer_again(void **state)
{
    (void)state;
    resolve();
    rig_carry_copy(0, SW_CM_SIDR_REQ);
    struct sw_cm_id *id = rig_expect(1, SW_CM_EVENT_SIDR_REQ).id;
    rig_carry_copy(0, SW_CM_SIDR_REQ);
    rig_nothing_sent(1);
    answer(id);
    rig_lose(1, SW_CM_SIDR_REP);
    rig_carry(0, SW_CM_SIDR_REQ);
    rig_no_event(1);
    rig_carry_copy(1, SW_CM_SIDR_REP);
    rig_expect(0, SW_CM_EVENT_SIDR_REP);
    rig_carry(1, SW_CM_SIDR_REP);
    rig_no_event(0);
}

static void sidr__to_nobody_is_refused(void **state)
{
    (void)state;
    sw_cm_unlisten(&rig[1].cm, &rig[1].listener);
    resolve();
    rig_carry(0, SW_CM_SIDR_REQ);
    rig_carry(1, SW_CM_SIDR_REP);
    assert_int_equal(rig_expect(0, SW_CM_EVENT_SIDR_REP).message.sidr_rep.status,
                     SW_CM_SIDR_UNSUPPORTED);
}

static void sidr__that_the_user_refuses(void **state)
{
    (void)state;
    rig[1].refusal = SW_CM_SIDR_NO_QP;
    resolve();
    rig_carry(0, SW_CM_SIDR_REQ);
    rig_carry(1, SW_CM_SIDR_REP);
    assert_int_equal(rig_expect(0, SW_CM_EVENT_SIDR_REP).message.sidr_rep.status, SW_CM_SIDR_NO_QP);
}

static void sidr__destroyed_is_refused(void **state)
{
    (void)state;
    resolve();
    rig_carry(0, SW_CM_SIDR_REQ);
    sw_cm_id_destroy(&rig[1].cm, rig_expect(1, SW_CM_EVENT_SIDR_REQ).id, rig_now);
    rig_carry(1, SW_CM_SIDR_REP);
    assert_int_equal(rig_expect(0, SW_CM_EVENT_SIDR_REP).message.sidr_rep.status,
                     SW_CM_SIDR_REJECTED);
    assert_int_equal(rig[1].released, 1);
    resolve();
    sw_cm_id_destroy(&rig[0].cm, &active, rig_now);
    assert_int_equal(rig[0].released, 1);
    rig_is_empty(0);
}

static void sidr__same_number_from_two_nodes_is_two(void **state)
{
    (void)state;
    struct sw_cm_message req = {
        .attribute = SW_CM_SIDR_REQ,
        .transaction = 5,
        .sidr_req = {.request_id = 7, .pkey = 0xffff, .service_id = RIG_SERVICE}};
    rig_inject(0, 1, &req);
    rig_inject(2, 1, &req);
    rig_expect(1, SW_CM_EVENT_SIDR_REQ);
    rig_expect(1, SW_CM_EVENT_SIDR_REQ);
}

static void sidr__ids_take_no_messages_of_connections(void **state)
{
    (void)state;
    resolve();
    struct sw_cm_message rej = {.attribute = SW_CM_REJ,
                                .rej = {.remote_comm_id = active.local_comm_id, .reason = 8}};
    rig_inject(1, 0, &rej);
    rig_no_event(0);
    assert_int_equal(active.state, SW_CM_SIDR_REQ_SENT);
}

static uint16_t addressee(const struct sw_cm_message *message, uint64_t *service_id)
{
    uint8_t mad[SW_MAD_BYTES];
    sw_cm_mad_encode(message, mad);
    *service_id = 1;
    const bool asks = sw_cm_asks(mad, sizeof(mad), service_id);
    assert_true(asks == (message->attribute == SW_CM_REQ || message->attribute == SW_CM_SIDR_REQ));
    return sw_cm_addressee(mad, sizeof(mad));
}

static void addressee__is_the_slot_or_the_listener(void **state)
{
    (void)state;
    struct sw_cm_message message = {.attribute = SW_CM_REQ, .req = {.service_id = 0x01061234}};
    uint64_t service_id;
    assert_int_equal(addressee(&message, &service_id), 0);
    assert_true(service_id == 0x01061234);
    message = (struct sw_cm_message){.attribute = SW_CM_REQ}; /* service 0 is a service, too */
    assert_int_equal(addressee(&message, &service_id), 0);
    assert_true(service_id == 0);
    message =
        (struct sw_cm_message){.attribute = SW_CM_SIDR_REQ, .sidr_req = {.service_id = 0x01111234}};
    assert_int_equal(addressee(&message, &service_id), 0);
    assert_true(service_id == 0x01111234);
    message = (struct sw_cm_message){.attribute = SW_CM_SIDR_REP,
                                     .sidr_rep = {.request_id = 5u << 21 | 3}};
    assert_int_equal(addressee(&message, &service_id), 5);
    assert_true(service_id == 1); /* untouched */
    static const enum sw_cm_attribute others[] = {SW_CM_MRA,  SW_CM_REJ,  SW_CM_REP, SW_CM_RTU,
                                                  SW_CM_DREQ, SW_CM_DREP, SW_CM_LAP, SW_CM_APR};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        message = (struct sw_cm_message){.attribute = others[i]};
        message.rtu.local_comm_id = 9u << 21;
        message.rtu.remote_comm_id = 2046u << 21 | 77;
        assert_int_equal(addressee(&message, &service_id), 2046);
    }
    uint8_t mad[SW_MAD_BYTES] = {1, 7, 2, 3};
    assert_int_equal(sw_cm_addressee(mad, sizeof(mad)), 0);
    assert_false(sw_cm_asks(mad, sizeof(mad), &service_id));
    assert_int_equal(sw_cm_addressee(mad, 255), 0);
    assert_false(sw_cm_asks(mad, 255, &service_id));
}

static void receive__counts_what_is_no_message(void **state)
{
    (void)state;
    struct sw_cm_path path = rig_path(1, 0);
    uint8_t mad[SW_MAD_BYTES] = {0};
    assert_int_equal(sw_cm_receive(&rig[1].cm, &path, mad, sizeof(mad), rig_now),
                     SW_CM_MAD_FAULT_VERSION);
    assert_int_equal(sw_cm_receive(&rig[1].cm, &path, mad, 255, rig_now), SW_CM_MAD_FAULT_LENGTH);
    assert_int_equal(rig[1].cm.counts.malformed, 2);
}

/* Ten thousand at once, in an order of their own; and nothing is left of them. */
static void timers__run_out_in_order(void **state)
{
    (void)state;
    enum { COUNT = 10000 };
    static struct sw_cm_timer timers[COUNT];
    struct sw_cm_timers heap = {NULL};
    uint64_t random = 88172645463325252ull, last = 0;
    int taken = 0;
    memset(timers, 0, sizeof(timers));
    for (int i = 0; i < 3 * COUNT; i++) { /* set, and set again */
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        sw_cm_timer_set(&heap, &timers[random % COUNT], random >> 40);
        if (i % 3 == 0)
            sw_cm_timer_clear(&heap, &timers[(random >> 20) % COUNT]);
    }
    int armed = 0;
    for (int i = 0; i < COUNT; i++)
        armed += timers[i].armed;
    for (; heap.first; taken++) {
        assert_true(heap.first->armed && heap.first->due_ns >= last);
        last = heap.first->due_ns;
        sw_cm_timer_clear(&heap, heap.first);
    }
    assert_int_equal(taken, armed);
    assert_in_range(armed, COUNT / 4, COUNT);
}

static void connect__with_thousands_of_ids(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    struct sw_cm_id *ids = calloc(COUNT, sizeof(*ids));
    struct sw_cm_path path = rig_path(0, 1);
    assert_non_null(ids);
    for (uint32_t i = 0; i < COUNT; i++) {
        struct sw_cm_req req = rig_req(0, 1, i + 1);
        sw_cm_id_init(&ids[i], NULL);
        assert_int_equal(sw_cm_connect(&rig[0].cm, &ids[i], &path, &req, rig_now), 0);
        rig_lose(0, SW_CM_REQ);
    }
    assert_int_equal(rig[0].cm.id_count, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        for (uint32_t near = i + 1; near < i + 5 && near < COUNT; near++)
            assert_int_not_equal(ids[i].local_comm_id, ids[near].local_comm_id);
    for (uint32_t i = 0; i < COUNT; i++) {
        struct sw_cm_message rej = {.attribute = SW_CM_REJ,
                                    .rej = {.remote_comm_id = ids[i].local_comm_id, .reason = 8}};
        rig_inject(1, 0, &rej);
        assert_ptr_equal(rig_expect(0, SW_CM_EVENT_REJ).id, &ids[i]);
    }
    rig_is_empty(0);
    free(ids);
}

static void names__are_there_for_all(void **state)
{
    (void)state;
    for (int i = 0; i < SW_CM_STATE_COUNT; i++)
        assert_int_not_equal(strlen(sw_cm_state_name((enum sw_cm_state)i)), 0);
    for (int i = 0; i < SW_CM_EVENT_COUNT; i++)
        assert_int_not_equal(strlen(sw_cm_event_name((enum sw_cm_event_kind)i)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(listen__one_listener_a_service, rig_setup),
        cmocka_unit_test_setup(listen__by_mask_gets_what_no_other_does, rig_setup),
        cmocka_unit_test_setup(sidr__gets_its_answer, rig_setup),
        cmocka_unit_test_setup(sidr__asks_again_until_retries_are_over, rig_setup),
        cmocka_unit_test_setup(sidr__doubled_is_one_and_hears_the_answer_again, rig_setup),
        cmocka_unit_test_setup(sidr__to_nobody_is_refused, rig_setup),
        cmocka_unit_test_setup(sidr__that_the_user_refuses, rig_setup),
        cmocka_unit_test_setup(sidr__destroyed_is_refused, rig_setup),
        cmocka_unit_test_setup(sidr__same_number_from_two_nodes_is_two, rig_setup),
        cmocka_unit_test_setup(sidr__ids_take_no_messages_of_connections, rig_setup),
        cmocka_unit_test_setup(addressee__is_the_slot_or_the_listener, rig_setup),
        cmocka_unit_test_setup(receive__counts_what_is_no_message, rig_setup),
        cmocka_unit_test(timers__run_out_in_order),
        cmocka_unit_test_setup(connect__with_thousands_of_ids, rig_setup),
        cmocka_unit_test(names__are_there_for_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
