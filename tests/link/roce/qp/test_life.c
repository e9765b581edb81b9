/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets of a connection's former lives, see link/roce/qp/life.c. */
#include <netinet/in.h>
#include <string.h>

#include "link/roce/port/port.h"
#include "link/roce/qp/life.h"
#include "link/roce/qp/qp.h"
#include "link/roce/roce.h"
#include "link_rig.h"

enum { QPN = 0x1007, PEER_QPN = 0x2009, INDEX = 7, MS = 1000000, NUMBERS = SW_SELECTIVE_LIFE + 1 };

static struct sw_qp qp;
static struct sw_roce_qp life;
static uint64_t now_ns = MS;

static void begin(uint32_t dest_qpn)
{
    qp = (struct sw_qp){.qpn = QPN, .dest_qpn = dest_qpn, .index = INDEX, .type = IBV_QPT_RC};
    qp.lock.held = 1;
    life = (struct sw_roce_qp){.qp = &qp, .path.dest = IN6ADDR_LOOPBACK_INIT};
    sw_roce_life_begin(&life);
}

/* If it is not, it is believed. */
static bool is_over(int number)
{
    const uint8_t mark = sw_selective_mark(true, (uint8_t)number);
    if (sw_roce_life_is_over(&life, mark, now_ns))
        return true;
    life.life.peer_mark = mark;
    return false;
}

/* A life in which the peer is heard. */
static void live(uint32_t dest_qpn, int number)
{
    begin(dest_qpn);
    assert_false(is_over(number));
    sw_roce_life_end(&life);
}

static int forget(void **state)
{
    (void)state;
    static uint32_t others = PEER_QPN;
    live(++others, 0);
    return 0;
}

static void is_over__in_a_packet_of_a_former_life(void **state)
{
    (void)state;
    live(PEER_QPN, 0);
    for (int number = 1; number < 3 * NUMBERS; number++) {
        begin(PEER_QPN);
        for (int ago = 1; ago <= number && ago <= SW_ROCE_LIVES; ago++)
            assert_true(is_over(number - ago)); /* before anything of this life has come */
        assert_false(is_over(number));
        for (int ago = 1; ago <= number && ago < SW_ROCE_LIVES; ago++)
            assert_true(is_over(number - ago));
        assert_false(is_over(number));
        sw_roce_life_end(&life);
    }
}

/* Nothing was heard of the life before while it lasted: it is told by its number all the same. */
static void is_over__in_a_packet_of_a_life_that_was_not_heard_of(void **state)
{
    (void)state;
    live(PEER_QPN, 4);
    begin(PEER_QPN); /* 5 */
    sw_roce_life_end(&life);
    begin(PEER_QPN);
    assert_false(is_over(6));
    assert_true(is_over(5));
    assert_true(is_over(4));
    assert_false(is_over(6));
}

/* Others than Sidewire do not number theirs. */
static void is_over__never_for_others(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        begin(PEER_QPN);
        assert_false(sw_roce_life_is_over(&life, 0, now_ns));
        sw_roce_life_end(&life);
    }
}

static void is_over__not_for_another_peer(void **state)
{
    (void)state;
    live(PEER_QPN, 3);
    begin(PEER_QPN - 1);
    assert_false(is_over(3));
}

static void is_over__after_a_life_without_a_sign(void **state)
{
    (void)state;
    live(PEER_QPN, 3);
    begin(PEER_QPN);
    sw_roce_life_end(&life);
    begin(PEER_QPN);
    assert_true(is_over(3));
}

static void is_over__not_after_so_many_without_a_sign_that_numbers_come_around(void **state)
{
    (void)state;
    for (int silent = 0; silent < 2 * NUMBERS; silent++) {
        live(PEER_QPN, 3);
        for (int i = 0; i < silent; i++) {
            begin(PEER_QPN);
            sw_roce_life_end(&life);
        }
        begin(PEER_QPN);
        assert_false(is_over(3 + 1 + silent));
        forget(NULL);
    }
}

/* The peer alone was connected again and again, unheard. */
static void is_over__not_for_ever_if_nothing_else_comes(void **state)
{
    (void)state;
    live(PEER_QPN, 3);
    begin(PEER_QPN);
    for (int i = 0; i < 5; i++, now_ns += 99 * MS) {
        assert_true(is_over(2));
        sw_roce.heard_ns = now_ns; /* and all that waited was received */
    }
    now_ns += 99 * MS;
    assert_true(is_over(2)); /* it may have waited */
    sw_roce.heard_ns = now_ns;
    assert_false(is_over(2));
    begin(PEER_QPN);
    assert_true(is_over(2));
    assert_false(is_over(4));
    now_ns += 1000 * MS;
    assert_true(is_over(2)); /* something else did come */
}

/* This process had no processor for long: what it finds then may have come before. */
static void is_over__what_has_waited_here(void **state)
{
    (void)state;
    live(PEER_QPN, 3);
    begin(PEER_QPN);
    sw_roce.heard_ns = now_ns;
    assert_true(is_over(2));
    now_ns += 5000ull * MS;
    assert_true(is_over(2));
    assert_true(is_over(3));
}

/* Packets say which life they are of, other than the ones before. */
static void begin__numbers_what_is_sent(void **state)
{
    (void)state;
    begin(PEER_QPN);
    for (int i = 0, last = life.life.own; i < 2 * NUMBERS; i++, last = life.life.own) {
        sw_roce_life_end(&life);
        begin(PEER_QPN);
        assert_int_equal(life.life.own, (last + 1) % NUMBERS);
    }
}

/* A life's packets come from another port than those of the seven lives before. */
static void source__another_one_each_time(void **state)
{
    (void)state;
    begin(PEER_QPN);
    uint8_t used[SW_PORT_SENDERS];
    for (uint32_t i = 0; i < 5 * SW_PORT_SENDERS; i++) {
        used[i % SW_PORT_SENDERS] = sw_roce_life_source(&qp) % SW_PORT_SENDERS;
        for (uint32_t before = 1; before < SW_PORT_SENDERS && before <= i; before++)
            assert_int_not_equal(used[i % SW_PORT_SENDERS], used[(i - before) % SW_PORT_SENDERS]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(is_over__in_a_packet_of_a_former_life, forget),
        cmocka_unit_test_setup(is_over__in_a_packet_of_a_life_that_was_not_heard_of, forget),
        cmocka_unit_test_setup(is_over__never_for_others, forget),
        cmocka_unit_test_setup(is_over__not_for_another_peer, forget),
        cmocka_unit_test_setup(is_over__after_a_life_without_a_sign, forget),
        cmocka_unit_test_setup(is_over__not_after_so_many_without_a_sign_that_numbers_come_around,
                               forget),
        cmocka_unit_test_setup(is_over__not_for_ever_if_nothing_else_comes, forget),
        cmocka_unit_test_setup(is_over__what_has_waited_here, forget),
        cmocka_unit_test_setup(begin__numbers_what_is_sent, forget),
        cmocka_unit_test_setup(source__another_one_each_time, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
