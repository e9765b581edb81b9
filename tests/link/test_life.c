/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets of a connection's former lives, see link/roce/life.c. */
#include <netinet/in.h>
#include <string.h>

#include "link/roce/roce.h"
#include "link_rig.h"

enum { QPN = 0x1007, PEER_QPN = 0x2009, INDEX = 7, FIRST_PORT = 50000 };

static struct sw_qp qp;
static struct sw_roce_qp life;

static void begin(uint32_t dest_qpn)
{
    qp = (struct sw_qp){.qpn = QPN, .dest_qpn = dest_qpn, .index = INDEX, .type = IBV_QPT_RC};
    life = (struct sw_roce_qp){.qp = &qp, .path.dest = IN6ADDR_LOOPBACK_INIT};
    sw_roce_life_begin(&life);
}

static void end(int peer_port)
{
    life.first_port = (uint16_t)peer_port;
    sw_roce_life_end(&life);
}

static bool is_over(int port, uint8_t mark)
{
    const struct sw_arrival arrival = {.source_port = (uint16_t)port};
    const struct sw_packet packet = {.bth.reserved7 = mark};
    return sw_roce_life_is_over(&life, &arrival, &packet);
}

static int forget(void **state)
{
    (void)state;
    begin(PEER_QPN + 1); /* another peer */
    end(1);
    return 0;
}

static void is_over__from_the_port_of_a_former_life(void **state)
{
    (void)state;
    begin(PEER_QPN);
    assert_false(is_over(FIRST_PORT, SW_SELECTIVE_MARK)); /* there was none before */
    end(FIRST_PORT);
    for (int lives = 1; lives < 20; lives++) {
        begin(PEER_QPN);
        for (int ago = 1; ago <= lives && ago <= SW_ROCE_LIVES; ago++)
            assert_true(is_over(FIRST_PORT + lives - ago, SW_SELECTIVE_MARK));
        assert_false(is_over(FIRST_PORT + lives, SW_SELECTIVE_MARK));
        if (lives > SW_ROCE_LIVES) /* its ports come around */
            assert_false(is_over(FIRST_PORT + lives - SW_ROCE_LIVES - 1, SW_SELECTIVE_MARK));
        end(FIRST_PORT + lives);
    }
}

/* Others than Sidewire send all lives of a queue pair from one port. */
static void is_over__never_for_others(void **state)
{
    (void)state;
    begin(PEER_QPN);
    end(FIRST_PORT);
    begin(PEER_QPN);
    assert_false(is_over(FIRST_PORT, 0));
}

static void is_over__not_for_another_peer(void **state)
{
    (void)state;
    begin(PEER_QPN);
    end(FIRST_PORT);
    begin(PEER_QPN + 1);
    assert_false(is_over(FIRST_PORT, SW_SELECTIVE_MARK));
}

static void is_over__after_a_life_without_a_sign(void **state)
{
    (void)state;
    begin(PEER_QPN);
    end(FIRST_PORT);
    begin(PEER_QPN);
    end(0);
    begin(PEER_QPN);
    assert_true(is_over(FIRST_PORT, SW_SELECTIVE_MARK));
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
        cmocka_unit_test_setup(is_over__from_the_port_of_a_former_life, forget),
        cmocka_unit_test_setup(is_over__never_for_others, forget),
        cmocka_unit_test_setup(is_over__not_for_another_peer, forget),
        cmocka_unit_test_setup(is_over__after_a_life_without_a_sign, forget),
        cmocka_unit_test_setup(source__another_one_each_time, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
