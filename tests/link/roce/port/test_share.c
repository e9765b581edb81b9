/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes that share the port: what comes to one for another. */
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "link/roce/port/arrival.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"
#include "link/roce/port/rx_socket.h"
#include "link/roce/port/share.h"
#include "link/roce/port/tx.h"
#include "port_rig.h"

/* Whichever socket the kernel chose, each packet comes to the port whose slot it names; and once it
 * had to be handed on, the kernel is asked to bring it. */
static void sw_port_receive__finds_the_right_process(void **state)
{
    struct pair *pair = *state;
    uint64_t handed = 0;
    for (uint32_t round = 0; round < 50; round++) {
        struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
        path.sender = (uint8_t)(round % SW_PORT_SENDERS);
        assert_int_equal(sw_port_aim(&pair->one, &path), 0);
        struct sw_batch *batch = sw_batch_open(&pair->one);
        for (uint32_t n = 0; n < 4; n++)
            add(batch, &path, 6, n, 512);
        sw_batch_close(batch);
        receive(pair, (round + 1) * 4);
        uint64_t now = sw_port_counter(&pair->one, SW_PORT_RX_HANDED_ON);
        if (round >= SW_PORT_SENDERS)
            assert_int_equal(now, handed); /* all senders are known */
        handed = now;
    }
    assert_int_equal(sw_port_counter(&pair->one, SW_PORT_RX_PACKETS), 0);
    assert_int_equal(sw_port_counter(&pair->two, SW_PORT_RX_PACKETS), 200);
    assert_int_equal(sw_port_counter(&pair->two, SW_PORT_RX_TAKEN_OVER), handed);
    uint32_t rx_sockets = pair->two.rx_socket_count;
    assert_true(sw_port_tidy(&pair->two, sw_clock_ns()));
    assert_int_equal(pair->two.rx_socket_count, rx_sockets);
    assert_true(sw_port_tidy(&pair->two, sw_clock_ns() + 60 * SW_NS_PER_S));
    assert_false(sw_port_tidy(&pair->two, sw_clock_ns() + 61 * SW_NS_PER_S));
    assert_int_equal(pair->two.rx_socket_count, 3);
}

/* Its UDP sockets are closed: the kernel brings all to the other one. */
static void deafen(struct sw_port *port)
{
    for (uint32_t i = 0; i < port->rx_socket_count;) {
        if (port->rx_sockets[i].kind == SW_RX_SOCKET_UDP) {
            close(port->rx_sockets[i].fd);
            port->rx_sockets[i] = port->rx_sockets[--port->rx_socket_count];
        } else {
            i++;
        }
    }
}

/* Packets [from, to), each by itself. */
static void send_to_two(struct pair *pair, uint32_t from, uint32_t to)
{
    struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    for (uint32_t n = from; n < to; n++) {
        struct sw_batch *batch = sw_batch_open(&pair->one);
        add(batch, &path, 6, n, 64 + n);
        sw_batch_close(batch);
    }
}

/* Anybody could have it open all it may, and those it knows would be handed on for ever. */
static void sw_port_receive__opens_no_socket_for_a_stranger(void **state)
{
    struct pair *pair = *state;
    deafen(&pair->two);
    const uint32_t rx_sockets = pair->two.rx_socket_count;
    are_strangers = true;
    send_to_two(pair, 0, 3);
    receive(pair, 3);
    are_strangers = false;
    assert_int_equal(pair->two.rx_socket_count, rx_sockets);
    send_to_two(pair, 3, 6);
    receive(pair, 6);
    assert_int_equal(pair->two.rx_socket_count, rx_sockets + 1);
}

/* Some of a flow are still with the other process when the kernel begins to bring the rest. */
static void begin_to_move(struct pair *pair)
{
    deafen(&pair->two);
    send_to_two(pair, 0, 1);
    sw_port_receive(&pair->one, sw_clock_ns(), true);
    send_to_two(pair, 1, 6);
    sw_port_receive(&pair->two, sw_clock_ns(), true);   /* and asks for the flow */
    assert_int_not_equal(pair->two.due_ns, UINT64_MAX); /* but does not wait for ever */
    came_in_order(1);
    send_to_two(pair, 6, 10);
    for (int i = 0; i < 3; i++)
        sw_port_receive(&pair->two, sw_clock_ns(), true);
    came_in_order(1);
}

static void sw_port_receive__keeps_the_order_of_a_flow_that_moves(void **state)
{
    struct pair *pair = *state;
    begin_to_move(pair);
    sw_port_receive(&pair->one, sw_clock_ns(), true);
    for (int i = 0; i < 2; i++)
        sw_port_receive(&pair->two, sw_clock_ns(), true);
    came_in_order(10);
    assert_int_equal(sw_port_counter(&pair->one, SW_PORT_RX_HANDED_ON), 6);
    assert_int_equal(pair->two.due_ns, UINT64_MAX);
}

/* Packets that the other process still has are then as good as lost, or late. */
static void sw_port_receive__waits_for_another_process_for_a_while(void **state)
{
    struct pair *pair = *state;
    begin_to_move(pair);
    const uint64_t due_ns = pair->two.due_ns;
    assert_in_range(due_ns, sw_clock_ns() - SW_NS_PER_S, sw_clock_ns() + SW_NS_PER_S);
    sw_port_receive(&pair->two, due_ns, true);
    assert_int_equal(seen.count, 5);
    assert_int_equal(seen.order[1], 6);
}

/* A socket between processes queues ten messages or so. */
static void sw_port_receive__keeps_what_another_process_has_no_room_for(void **state)
{
    struct pair *pair = *state;
    deafen(&pair->two);
    for (uint32_t n = 0; n < 40; n++) {
        send_to_two(pair, n, n + 1);
        sw_port_receive(&pair->one, sw_clock_ns(), true);
    }
    assert_int_not_equal(pair->one.due_ns, UINT64_MAX); /* it is tried again */
    receive(pair, 40);
    came_in_order(40);
    assert_int_equal(sw_port_counter(&pair->one, SW_PORT_HAND_DROPPED), 0);
    assert_int_equal(pair->one.due_ns, UINT64_MAX);
}

/* A third process, which has a name of its own and may say that it is another. */
static void open_third(struct sw_port *third)
{
    assert_int_equal(sw_port_open(third, SW_ROCE_PORT, 9, keep, NULL), 0);
    sw_lock_acquire(&third->rx_lock);
    deafen(third);
}

static void say_done(struct sw_port *third, uint32_t as_slot)
{
    const struct sw_handed ask = {.slot = 6, .batch.arrival = seen.last};
    third->slot = as_slot;
    sw_share_answer(third, &ask);
    sw_share_flush(third);
}

static void sw_port_receive__a_word_is_of_the_process_whose_socket_says_it(void **state)
{
    struct pair *pair = *state;
    static struct sw_port third;
    open_third(&third);
    begin_to_move(pair);
    const uint64_t before_due_ns = pair->two.due_ns - 1;
    say_done(&third, 9); /* nobody has asked it */
    sw_port_receive(&pair->two, before_due_ns, true);
    say_done(&third, 5);
    for (int i = 0; i < 3; i++)
        sw_port_receive(&pair->two, before_due_ns, true);
    came_in_order(1);
    sw_port_receive(&pair->one, sw_clock_ns(), true);
    for (int i = 0; i < 2; i++)
        sw_port_receive(&pair->two, before_due_ns, true);
    came_in_order(10);
    sw_port_close(&third);
}

/* The packets of a flow reach their process, whoever gets them. */
static void sw_port_receive__what_another_process_hands_on_under_its_own_name(void **state)
{
    struct pair *pair = *state;
    static struct sw_port third;
    deafen(&pair->one);
    deafen(&pair->two);
    assert_int_equal(sw_port_open(&third, SW_ROCE_PORT, 9, keep, NULL), 0);
    sw_lock_acquire(&third.rx_lock);
    third.slot = 5;
    send_to_two(pair, 0, 1);
    sw_port_receive(&third, sw_clock_ns(), true);
    sw_port_receive(&pair->two, sw_clock_ns(), true);
    assert_int_equal(seen.count, 0);
    third.slot = 9;
    send_to_two(pair, 0, 1);
    sw_port_receive(&third, sw_clock_ns(), true);
    sw_port_receive(&pair->two, sw_clock_ns(), true);
    came_in_order(1);
    sw_port_close(&third);
}

/* The other one is stopped and has all of a flow, and reads none. */
static void sw_port_claim_flow__of_a_process_that_does_not_run(void **state)
{
    struct pair *pair = *state;
    deafen(&pair->two);
    const struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    const struct sw_arrival flow = {
        .source = path.source, .dest = path.dest, .source_port = sw_port_source(&pair->one, &path)};
    send_to_two(pair, 0, 1);
    sw_port_receive(&pair->two, sw_clock_ns(), true);
    assert_int_equal(seen.count, 0);
    assert_true(sw_port_claim_flow(&pair->two, &flow, sw_clock_ns()));
    assert_false(sw_port_claim_flow(&pair->two, &flow, sw_clock_ns())); /* it has it */
    struct pollfd wait = {pair->two.epoll, POLLIN, 0};
    send_to_two(pair, 1, 3);
    assert_int_equal(poll(&wait, 1, 5000), 1);
    sw_port_receive(&pair->two, sw_clock_ns(), true);
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.order[0], 1);
}

/* Packets for others come here, too, and are handed on: they may ask for the flow. */
static void sw_port_claim_flow__that_others_have_a_part_in(void **state)
{
    struct pair *pair = *state;
    static struct sw_port third;
    open_third(&third);
    deafen(&pair->two);
    const struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    const struct sw_arrival flow = {
        .source = path.source, .dest = path.dest, .source_port = sw_port_source(&pair->one, &path)};
    assert_true(sw_port_claim_flow(&third, &flow, sw_clock_ns()));
    send_to_two(pair, 0, 3);
    sw_port_receive(&third, sw_clock_ns(), true);
    sw_port_receive(&pair->two, sw_clock_ns(), true);
    came_in_order(3);
    sw_port_close(&third);
}

/* A peer says by how many it sends. */
static void sw_port_claim_flow__leaves_room_for_others(void **state)
{
    struct pair *pair = *state;
    struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    struct sw_arrival flow = {.source = path.source, .dest = path.dest};
    uint32_t had = 0;
    for (flow.source_port = 2000; flow.source_port < 2000 + SW_PORT_CONNECTED_MAX;
         flow.source_port++)
        had += sw_port_claim_flow(&pair->two, &flow, sw_clock_ns());
    assert_in_range(had, SW_PORT_SENDERS, SW_PORT_CONNECTED_MAX / 2);
}

enum { HOT = 1500 }; /* messages that make a flow hot, and some */

/* Packet n of process two's to process one or two, all by the sockets of one. */
static void send_hot(struct pair *pair, uint32_t slot, uint32_t n)
{
    struct sw_roce_path path = path_to(&pair->two, lo_v4, lo_v4);
    struct sw_batch *batch = sw_batch_open(&pair->two);
    add(batch, &path, slot, n % KEPT, 64);
    sw_batch_close(batch);
}

/* Three wait when one is taken. */
static void make_hot(struct pair *pair)
{
    uint32_t sent = 0, checked = 0;
    deafen(&pair->two);
    while (checked < HOT) {
        for (int i = 0; i < 3 && sent < HOT; i++)
            send_hot(pair, 5, sent++);
        sw_port_receive(&pair->one, sw_clock_ns(), false);
        for (; checked < seen.count; checked++)
            assert_int_equal(seen.order[checked % KEPT], checked % KEPT);
        if (sent == HOT)
            receive(pair, HOT);
    }
}

static struct sw_rx_socket *connected_rx(struct sw_port *port)
{
    for (uint32_t i = 0; i < port->rx_socket_count; i++)
        if (port->rx_sockets[i].kind == SW_RX_SOCKET_CONNECTED && !port->rx_sockets[i].turned_ns)
            return &port->rx_sockets[i];
    return NULL;
}

static void sw_port_receive__asks_for_the_flow_that_brings_all(void **state)
{
    struct pair *pair = *state;
    make_hot(pair);
    const struct sw_rx_socket *rx = connected_rx(&pair->one);
    assert_non_null(rx);
    assert_int_equal(rx->held_until_ns, 0);
    const struct sw_arrival before = seen.last; /* what the kernel told of it */
    for (uint32_t i = 0; i < 3; i++) {          /* it wakes who sleeps on the port */
        struct pollfd wait = {pair->one.epoll, POLLIN, 0};
        send_hot(pair, 5, HOT + i);
        assert_int_equal(poll(&wait, 1, 5000), 1);
        sw_port_receive(&pair->one, sw_clock_ns(), false);
    }
    assert_int_equal(seen.count, HOT + 3);
    assert_memory_equal(&seen.last.source, &before.source, sizeof(before.source));
    assert_memory_equal(&seen.last.dest, &before.dest, sizeof(before.dest));
    assert_int_equal(seen.last.traffic_class, before.traffic_class);
    assert_int_equal(seen.last.hop_limit, before.hop_limit);
    assert_int_equal(seen.last.ifindex, before.ifindex);
    assert_true(before.hop_limit && before.ifindex);
}

/* The kernel is not asked, but for what may have come before the socket was connected. */
static void sw_port_receive__knows_whose_flow_it_is(void **state)
{
    struct pair *pair = *state;
    make_hot(pair);
    struct sw_rx_socket *rx = connected_rx(&pair->one);
    const uint16_t source_port = seen.last.source_port;
    assert_non_null(rx);
    for (uint32_t i = 0; i < 100 && !rx->is_pure; i++)
        sw_port_receive(&pair->one, sw_clock_ns(), true);
    assert_true(rx->is_pure);
    for (uint32_t i = 0; i < 2; i++) {
        memset(&seen.last, 0, sizeof(seen.last));
        send_hot(pair, 5, HOT + i);
        receive(pair, HOT + i + 1);
        assert_memory_equal(&seen.last.source, &rx->remote, sizeof(rx->remote));
        assert_int_equal(seen.last.source_port, source_port);
        rx->is_pure = false;
        rx->remote_port = 1;
    }
}

static void sw_port_receive__asks_for_no_flow_among_several(void **state)
{
    struct pair *pair = *state;
    deafen(&pair->two);
    for (uint32_t n = 0; n < 2 * HOT; n++) {
        struct sw_roce_path path = path_to(&pair->two, lo_v4, lo_v4);
        path.sender = (uint8_t)(n % 512 == 511);
        assert_int_equal(sw_port_aim(&pair->two, &path), 0);
        struct sw_batch *batch = sw_batch_open(&pair->two);
        add(batch, &path, 5, n % KEPT, 64);
        sw_batch_close(batch);
        receive(pair, n + 1);
    }
    assert_null(connected_rx(&pair->one));
}

/* Another process would be handed each of its packets. */
static void sw_port_receive__lets_go_of_a_flow_that_others_need(void **state)
{
    struct pair *pair = *state;
    make_hot(pair);
    for (uint32_t i = 0; i < HOT; i++) {
        send_hot(pair, 6, HOT + i);
        receive(pair, HOT + i + 1);
        assert_int_equal(seen.order[(HOT + i) % KEPT], (HOT + i) % KEPT);
    }
    assert_null(connected_rx(&pair->one));
    assert_non_null(connected_rx(&pair->two));
    assert_in_range(sw_port_counter(&pair->one, SW_PORT_RX_HANDED_ON), 1, 10);
}

static int count_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* A sender of some, also of another user, would use up those that the process may have. */
static void sw_port_receive__takes_no_descriptors(void **state)
{
    struct pair *pair = *state;
    static const char name[] = "sidewire.6.roce";
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    memcpy(to.sun_path + 1, name, sizeof(name) - 1);
    int fds[8], sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (int i = 0; i < 8; i++)
        fds[i] = sender;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {0};
    struct iovec iov = {"x", 1};
    struct msghdr message = {.msg_name = &to,
                             .msg_namelen =
                                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof(name)),
                             .msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    *rights = (struct cmsghdr){CMSG_LEN(sizeof(fds)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(rights), fds, sizeof(fds));
    const int before = count_descriptors();
    assert_int_equal(sendmsg(sender, &message, 0), 1);
    sw_port_receive(&pair->two, sw_clock_ns(), true);
    assert_int_equal(count_descriptors(), before);
    close(sender);
}

static void sw_port_tidy__keeps_a_socket_with_something_in_it(void **state)
{
    struct pair *pair = *state;
    begin_to_move(pair);
    sw_port_receive(&pair->two, pair->two.due_ns, true);
    const uint32_t rx_sockets = pair->two.rx_socket_count;
    send_to_two(pair, 10, 11);
    sw_port_tidy(&pair->two, sw_clock_ns() + 60 * SW_NS_PER_S);
    sw_port_tidy(&pair->two, sw_clock_ns() + 61 * SW_NS_PER_S);
    assert_int_equal(pair->two.rx_socket_count, rx_sockets);
    sw_port_receive(&pair->two, sw_clock_ns(), true);
    assert_int_equal(seen.order[5], 10);
    sw_port_tidy(&pair->two, sw_clock_ns() + 61 * SW_NS_PER_S);
    assert_int_equal(pair->two.rx_socket_count, rx_sockets - 1);
}

/* The thread that tidies may have looked at the clock before the packet came. */
static void sw_port_tidy__keeps_a_socket_that_was_just_heard(void **state)
{
    struct pair *pair = *state;
    const uint64_t before_ns = sw_clock_ns();
    begin_to_move(pair);
    sw_port_receive(&pair->two, pair->two.due_ns, true);
    const uint32_t rx_sockets = pair->two.rx_socket_count;
    for (int i = 0; i < 3; i++)
        sw_port_tidy(&pair->two, before_ns + i * SW_NS_PER_S);
    assert_int_equal(pair->two.rx_socket_count, rx_sockets);
    send_to_two(pair, 10, 11);
    sw_port_receive(&pair->two, sw_clock_ns(), true);
    assert_int_equal(seen.order[5], 10);
}

/* Packets that come while it goes are received by it or by the port, and the flow can move here
 * again. */
static void sw_port_tidy__loses_nothing(void **state)
{
    struct pair *pair = *state;
    begin_to_move(pair);
    receive(pair, 10);
    const uint32_t before = seen.count, rx_sockets = pair->two.rx_socket_count;
    uint64_t now_ns = sw_clock_ns();
    for (uint32_t n = 10; n < 40; n++, now_ns += 20 * SW_NS_PER_S) {
        sw_port_tidy(&pair->two, now_ns);
        send_to_two(pair, n, n + 1);
        sw_port_tidy(&pair->two, now_ns + SW_NS_PER_S / 4);
        for (int i = 0; i < 4; i++) {
            sw_port_receive(&pair->one, now_ns, true);
            sw_port_receive(&pair->two, now_ns, true);
        }
        assert_int_equal(seen.count, before + n - 9);
        assert_int_equal(seen.order[seen.count - 1], n);
        assert_in_range(pair->two.rx_socket_count, 1, rx_sockets + 1);
    }
}

/* From each source to process two: which of the two gets a flow is the kernel's choice. */
static void send_by_all(struct pair *pair, uint32_t n)
{
    for (uint32_t sender = 0; sender < SW_PORT_SENDERS; sender++) {
        struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
        path.sender = (uint8_t)sender;
        assert_int_equal(sw_port_aim(&pair->one, &path), 0);
        struct sw_batch *batch = sw_batch_open(&pair->one);
        add(batch, &path, 6, n + sender, 512);
        sw_batch_close(batch);
    }
}

/* Packets that waited for others are handed on, and nothing more comes to the one that ends. */
static void sw_port_leave__loses_nothing_of_others(void **state)
{
    struct pair *pair = *state;
    send_by_all(pair, 0);
    sw_port_leave(&pair->one);
    for (int i = 0; i < 4; i++)
        sw_port_receive(&pair->one, sw_clock_ns(), true);
    const uint64_t handed = sw_port_counter(&pair->one, SW_PORT_RX_HANDED_ON);
    send_by_all(pair, SW_PORT_SENDERS);
    for (int i = 0; i < 4; i++)
        sw_port_receive(&pair->one, sw_clock_ns(), true);
    assert_int_equal(sw_port_counter(&pair->one, SW_PORT_RX_HANDED_ON), handed);
    for (int i = 0; i < 1000 && seen.count < 2 * SW_PORT_SENDERS; i++)
        sw_port_receive(&pair->two, sw_clock_ns() + (uint64_t)i * SW_NS_PER_MS, true);
    assert_int_equal(seen.count, 2 * SW_PORT_SENDERS);
    assert_int_equal(sw_port_counter(&pair->one, SW_PORT_RX_PACKETS), 0);
}

static void sw_port_receive__of_a_process_that_is_gone(void **state)
{
    struct pair *pair = *state;
    struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    struct sw_batch *batch = sw_batch_open(&pair->one);
    add(batch, &path, 77, 0, 512);
    add(batch, &path, 5, 1, 512);
    sw_batch_close(batch);
    receive(pair, 1);
    assert_int_equal(sw_port_counter(&pair->one, SW_PORT_RX_NO_PROCESS) +
                         sw_port_counter(&pair->two, SW_PORT_RX_NO_PROCESS),
                     1);
}

int main(void)
{
    const int rc = enter_port_namespace();
    if (rc)
        return rc;
    const struct CMUnitTest tests[] = {
        WITH_PAIR(sw_port_receive__finds_the_right_process),
        WITH_PAIR(sw_port_receive__opens_no_socket_for_a_stranger),
        WITH_PAIR(sw_port_receive__keeps_the_order_of_a_flow_that_moves),
        WITH_PAIR(sw_port_receive__waits_for_another_process_for_a_while),
        WITH_PAIR(sw_port_receive__keeps_what_another_process_has_no_room_for),
        WITH_PAIR(sw_port_receive__a_word_is_of_the_process_whose_socket_says_it),
        WITH_PAIR(sw_port_receive__what_another_process_hands_on_under_its_own_name),
        WITH_PAIR(sw_port_claim_flow__of_a_process_that_does_not_run),
        WITH_PAIR(sw_port_claim_flow__that_others_have_a_part_in),
        WITH_PAIR(sw_port_claim_flow__leaves_room_for_others),
        WITH_PAIR(sw_port_receive__asks_for_the_flow_that_brings_all),
        WITH_PAIR(sw_port_receive__knows_whose_flow_it_is),
        WITH_PAIR(sw_port_receive__asks_for_no_flow_among_several),
        WITH_PAIR(sw_port_receive__lets_go_of_a_flow_that_others_need),
        WITH_PAIR(sw_port_receive__takes_no_descriptors),
        WITH_PAIR(sw_port_tidy__keeps_a_socket_with_something_in_it),
        WITH_PAIR(sw_port_tidy__keeps_a_socket_that_was_just_heard),
        WITH_PAIR(sw_port_tidy__loses_nothing),
        WITH_PAIR(sw_port_leave__loses_nothing_of_others),
        WITH_PAIR(sw_port_receive__of_a_process_that_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
