/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets that come alone: when their socket is asked for bytes only, and what that may not change.
 */
#include "base/clock.h"
#include "link/roce/port/arrival.h"
#include "link/roce/port/path.h"
#include "link/roce/port/rx_lone.h"
#include "link/roce/port/rx_socket.h"
#include "link/roce/port/share.h"
#include "link/roce/port/socket.h"
#include "port_rig.h"

enum { US = 1000, MS = 1000 * US, STREAK = 64, START_NS = 5 * MS };

/* ---- the rule ---- */

static uint64_t go_alone(struct sw_rx_lone *lone, uint64_t now_ns)
{
    for (uint32_t i = 0; i < STREAK; i++, now_ns += 10 * (uint64_t)US) {
        assert_false(sw_rx_lone_may_begin(lone, now_ns));
        sw_rx_lone_note(lone, true, now_ns);
    }
    return now_ns;
}

static void begins_when_many_came_alone(void **state)
{
    (void)state;
    struct sw_rx_lone lone = {0};
    const uint64_t now_ns = go_alone(&lone, START_NS);
    assert_true(sw_rx_lone_may_begin(&lone, now_ns));
    sw_rx_lone_tried(&lone, true, now_ns);
    assert_true(lone.is_on);
}

static void two_together_begin_anew(void **state)
{
    (void)state;
    struct sw_rx_lone lone = {0};
    uint64_t now_ns = START_NS;
    for (uint32_t i = 0; i < STREAK - 1; i++)
        sw_rx_lone_note(&lone, true, now_ns);
    sw_rx_lone_note(&lone, false, now_ns);
    now_ns = go_alone(&lone, now_ns);
    assert_true(sw_rx_lone_may_begin(&lone, now_ns));
}

static void few_in_long_are_not_worth_it(void **state)
{
    (void)state;
    struct sw_rx_lone lone = {0};
    for (uint64_t now_ns = START_NS; now_ns < 1000 * (uint64_t)MS; now_ns += MS) {
        sw_rx_lone_note(&lone, true, now_ns);
        assert_false(sw_rx_lone_may_begin(&lone, now_ns));
    }
}

static void what_waits_prevents_it(void **state)
{
    (void)state;
    struct sw_rx_lone lone = {0};
    const uint64_t now_ns = go_alone(&lone, START_NS);
    sw_rx_lone_tried(&lone, false, now_ns);
    assert_false(lone.is_on);
    assert_false(sw_rx_lone_may_begin(&lone, now_ns));
}

/* It looks at some packets each two milliseconds. */
static void looks_for_marks(void **state)
{
    (void)state;
    struct sw_rx_lone lone = {0};
    uint64_t now_ns = go_alone(&lone, START_NS);
    sw_rx_lone_tried(&lone, true, now_ns);
    const uint64_t begun_ns = now_ns;
    while (!sw_rx_lone_ends(&lone, true, now_ns))
        now_ns += 10 * (uint64_t)US;
    assert_int_equal(now_ns - begun_ns, 2 * MS);
    assert_false(lone.is_on);
    uint32_t looked = 0;
    for (; !sw_rx_lone_may_begin(&lone, now_ns); looked++)
        sw_rx_lone_note(&lone, true, now_ns);
    assert_int_equal(looked, 8);
}

static void ends_with_two_together(void **state)
{
    (void)state;
    struct sw_rx_lone lone = {0};
    uint64_t now_ns = go_alone(&lone, START_NS);
    sw_rx_lone_tried(&lone, true, now_ns);
    assert_false(sw_rx_lone_ends(&lone, true, now_ns));
    assert_true(sw_rx_lone_ends(&lone, false, now_ns));
    now_ns = go_alone(&lone, now_ns); /* not after some */
    assert_true(sw_rx_lone_may_begin(&lone, now_ns));
}

/* ---- sockets ---- */

struct flow {
    struct pair *pair;
    struct sw_roce_path path;
    struct sw_rx_socket *rx;
    uint64_t now_ns;
    uint32_t sent;
};

static void send_together(struct flow *flow, uint32_t count)
{
    struct sw_batch *batch = sw_batch_open(&flow->pair->one);
    for (uint32_t i = 0; i < count; i++)
        add(batch, &flow->path, 6, flow->sent++ % KEPT, 512);
    sw_batch_close(batch);
}

/* Until it finds nothing more. */
static void receive_all(struct flow *flow)
{
    const uint64_t limit_ns = sw_clock_ns() + 5 * SW_NS_PER_S;
    while (seen.count < flow->sent && sw_clock_ns() < limit_ns)
        sw_port_receive(&flow->pair->two, flow->now_ns, true);
    sw_port_receive(&flow->pair->two, flow->now_ns, true);
    assert_int_equal(seen.count, flow->sent);
    assert_int_equal(seen.order[(flow->sent - 1) % KEPT], (flow->sent - 1) % KEPT);
    assert_false(seen.damaged);
}

static void send_alone(struct flow *flow, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        send_together(flow, 1);
        receive_all(flow);
        flow->now_ns += US;
    }
}

/* Process two asks for the flow, unless the first packet came to process one, of which it has asked
 * for it by now. */
static struct flow open_flow(struct pair *pair)
{
    struct flow flow = {pair, path_to(&pair->one, lo_v4, lo_v4), NULL, 0, 0};
    send_together(&flow, 1);
    receive(pair, 1);
    sw_port_claim_flow(&pair->two, &seen.last, sw_clock_ns());
    flow.rx = &pair->two.rx_sockets[pair->two.rx_socket_count - 1];
    assert_int_equal(flow.rx->kind, SW_RX_SOCKET_CONNECTED);
    while (flow.rx->held_until_ns) {
        sw_port_receive(&pair->one, sw_clock_ns(), true);
        sw_port_receive(&pair->two, sw_clock_ns(), true);
    }
    flow.now_ns = sw_clock_ns();
    return flow;
}

static struct flow open_lone(struct pair *pair)
{
    struct flow flow = open_flow(pair);
    send_alone(&flow, STREAK + 2);
    assert_true(flow.rx->lone.is_on);
    return flow;
}

static void sw_port_receive__knows_as_much_of_lone_packets(void **state)
{
    struct flow flow = open_flow(*state);
    send_alone(&flow, 2);
    const struct sw_arrival told = seen.last;
    send_alone(&flow, STREAK + 2);
    assert_true(flow.rx->lone.is_on);
    assert_int_equal(seen.last.traffic_class, told.traffic_class);
    assert_int_equal(seen.last.hop_limit, told.hop_limit);
    assert_int_equal(seen.last.ifindex, told.ifindex);
    assert_memory_equal(&seen.last.source, &told.source, sizeof(told.source));
    assert_memory_equal(&seen.last.dest, &told.dest, sizeof(told.dest));
    assert_int_equal(seen.last.source_port, told.source_port);
}

static void sw_port_receive__takes_a_run_behind_lone_packets(void **state)
{
    struct flow flow = open_lone(*state);
    for (uint32_t round = 0; round < 4; round++) {
        send_together(&flow, 16);
        receive_all(&flow);
        assert_false(flow.rx->lone.is_on);
        send_together(&flow, 16);
        receive_all(&flow);
        send_alone(&flow, STREAK + 2);
        assert_true(flow.rx->lone.is_on);
    }
}

static void sw_port_receive__sees_marks_of_lone_packets(void **state)
{
    struct flow flow = open_lone(*state);
    flow.path.traffic_class |= 3;
    send_alone(&flow, 2);
    assert_true(flow.rx->lone.is_on);
    flow.now_ns += 2 * MS;
    send_alone(&flow, 2);
    assert_true(sw_arrival_is_marked(&seen.last));
    for (uint32_t i = 0; i < 2 * STREAK; i++) { /* and all that follow, while there are any */
        send_alone(&flow, 1);
        assert_true(sw_arrival_is_marked(&seen.last));
    }
}

/* A message of several packets that is there already would lose their lengths. */
static void sw_socket_tell_bytes_only__not_while_something_waits(void **state)
{
    struct flow flow = open_flow(*state);
    send_alone(&flow, 2);
    send_together(&flow, 16);
    assert_false(sw_socket_tell_bytes_only(flow.rx->fd, true));
    receive_all(&flow);
    assert_true(sw_socket_tell_bytes_only(flow.rx->fd, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begins_when_many_came_alone),
        cmocka_unit_test(two_together_begin_anew),
        cmocka_unit_test(few_in_long_are_not_worth_it),
        cmocka_unit_test(what_waits_prevents_it),
        cmocka_unit_test(looks_for_marks),
        cmocka_unit_test(ends_with_two_together),
        WITH_PAIR(sw_port_receive__knows_as_much_of_lone_packets),
        WITH_PAIR(sw_port_receive__takes_a_run_behind_lone_packets),
        WITH_PAIR(sw_port_receive__sees_marks_of_lone_packets),
        WITH_PAIR(sw_socket_tell_bytes_only__not_while_something_waits),
    };
    const int skipped = enter_port_namespace();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
