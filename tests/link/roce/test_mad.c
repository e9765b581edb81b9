/* SPDX-License-Identifier: BSD-2-Clause */
/* QP 1: several processes on one port, in a network namespace of their own. */
#include <net/if.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../preload/namespace.h"
#include "base/clock.h"
#include "device/nic/nic.h"
#include "device/queue/counters.h"
#include "link/link.h"
#include "link/roce/mad.h"
#include "link/roce/port/arrival.h"
#include "link/roce/port/mad_slot.h"
#include "link/roce/roce.h"
#include "wire/bytes.h"
#include "wire/cm_mad.h"
#include "wire/liveness.h"

static const uint8_t lo_v4[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
static const uint8_t lo_v6[16] = {[15] = 1};

/* Number n, for the process of the slot. */
static void make(uint8_t mad[SW_MAD_BYTES], uint32_t attribute, uint32_t slot, uint32_t n)
{
    memset(mad, 0x5a, SW_MAD_BYTES);
    mad[1] = SW_MAD_CLASS_CM;
    sw_be16_store(mad + 16, (uint16_t)attribute);
    sw_be32_store(mad + 24, attribute == SW_CM_SIDR_REP ? slot << 21 | 5 : 77u << 21);
    sw_be32_store(mad + 28, attribute == SW_CM_SIDR_REP ? 0 : slot << 21 | 5);
    sw_be32_store(mad + 252, n);
}

static void sw_roce_mad_slot__of_answers_only(void **state)
{
    (void)state;
    uint8_t mad[SW_MAD_BYTES];
    for (uint32_t attribute = SW_CM_REQ; attribute <= SW_CM_APR; attribute++) {
        bool asks = attribute == SW_CM_REQ || attribute == SW_CM_SIDR_REQ;
        make(mad, attribute, 2046, 0);
        assert_int_equal(sw_roce_mad_slot(mad), asks ? 0 : 2046);
    }
    make(mad, SW_CM_REP, 2047, 0); /* nobody's */
    assert_int_equal(sw_roce_mad_slot(mad), 0);
    make(mad, 0x1b, 5, 0);
    assert_int_equal(sw_roce_mad_slot(mad), 0);
    make(mad, SW_CM_REP, 5, 0);
    mad[1] = 0x03; /* a MAD for the subnet administrator */
    assert_int_equal(sw_roce_mad_slot(mad), 0);
}

/* A MAD about lives names its receiver, too. */
static void sw_roce_mad_slot__of_liveness(void **state)
{
    (void)state;
    uint8_t mad[SW_MAD_BYTES];
    struct sw_liveness_mad message = {.kind = SW_LIVENESS_MAD_ASK, .from = 3, .to = 2046};
    sw_liveness_mad_encode(&message, mad);
    assert_int_equal(sw_roce_mad_slot(mad), 2046);
    message.to = 2047;
    sw_liveness_mad_encode(&message, mad);
    assert_int_equal(sw_roce_mad_slot(mad), 0);
}

static uint32_t taken;

static void count(const struct sw_arrival *arrival, const uint8_t mad[SW_MAD_BYTES])
{
    (void)arrival;
    (void)mad;
    taken++;
}

static void sw_roce_deliver_mad__drops_and_counts_what_is_none(void **state)
{
    (void)state;
    const struct {
        uint8_t opcode;
        uint16_t pkey;
        uint32_t qkey, len_bytes;
        enum sw_counter counter;
    } cases[] = {
        {0x64, 0xffff, SW_MAD_QKEY, SW_MAD_BYTES, SW_COUNTER_COUNT},
        {0x64, 0x7fff, SW_MAD_QKEY, SW_MAD_BYTES, SW_COUNTER_COUNT},
        {0x64, 0xfffe, SW_MAD_QKEY, SW_MAD_BYTES, SW_RX_DROP_MALFORMED},
        {0x64, 0xffff, SW_MAD_QKEY + 1, SW_MAD_BYTES, SW_RX_DROP_QKEY},
        {0x64, 0xffff, SW_MAD_QKEY, SW_MAD_BYTES - 4, SW_RX_DROP_MALFORMED},
        {0x04, 0xffff, SW_MAD_QKEY, SW_MAD_BYTES, SW_RX_DROP_MALFORMED}, /* RC */
    };
    uint8_t mad[SW_MAD_BYTES];
    struct sw_arrival arrival = {0};
    make(mad, SW_CM_REP, 5, 1);
    assert_int_equal(sw_netdev_refresh(NULL, NULL), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const struct sw_packet packet = {
            .opcode = sw_opcode_of(cases[i].opcode),
            .bth = {.pkey = cases[i].pkey, .dest_qpn = SW_MAD_QPN},
            .deth = {.qkey = cases[i].qkey, .src_qpn = 1},
            .payload_len = cases[i].len_bytes,
            .payload = mad,
        };
        bool good = cases[i].counter == SW_COUNTER_COUNT;
        uint64_t before = good ? 0 : sw_counter_read(sw_netdev_get(0), cases[i].counter);
        sw_roce_on_mad(count);
        taken = 0;
        sw_lock_acquire(&sw_roce.port.rx_lock);
        sw_roce_deliver_mad(&arrival, &packet);
        sw_lock_release(&sw_roce.port.rx_lock);
        assert_int_equal(taken, good);
        if (!good)
            assert_int_equal(sw_counter_read(sw_netdev_get(0), cases[i].counter), before + 1);
    }
    sw_roce_on_mad(NULL);
}

/* A process with the port open, that says what MADs it gets. */
struct member {
    pid_t pid;
    int numbers, orders; /* pipes, from and to it */
    uint32_t slot;
};

struct heard {
    uint32_t number;
    uint8_t source[16], dest[16];
};

static int told; /* in a member */

static void tell(const struct sw_arrival *arrival, const uint8_t mad[SW_MAD_BYTES])
{
    struct heard heard = {.number = sw_be32_load(mad + 252)};
    memcpy(heard.source, &arrival->source, 16);
    memcpy(heard.dest, &arrival->dest, 16);
    if (write(told, &heard, sizeof(heard)) != sizeof(heard))
        _exit(4);
}

struct order { /* to send numbers from `first`, in turn to the slots; or to say a counter */
    uint32_t first, count, slots[2];
    bool is_ipv4;
};

static void send_as_ordered(const struct order *order)
{
    const uint8_t *address = order->is_ipv4 ? lo_v4 : lo_v6;
    for (uint32_t i = 0; i < order->count; i++) {
        uint8_t mad[SW_MAD_BYTES];
        make(mad, i % 3 ? SW_CM_REP : SW_CM_SIDR_REP, order->slots[i % 2], order->first + i);
        if (sw_roce_send_mad(address, address, 0, 0, mad))
            _exit(5);
    }
}

static void be_member(int orders, int numbers)
{
    struct order order;
    told = numbers;
    sw_roce_on_mad(tell);
    sw_link_init();
    if (sw_netdev_refresh(NULL, NULL) || sw_nic_start() || sw_roce_open(true))
        _exit(3);
    struct heard hello = {.number = sw_nic.slot};
    if (write(numbers, &hello, sizeof(hello)) != sizeof(hello))
        _exit(4);
    while (read(orders, &order, sizeof(order)) == sizeof(order) && order.count)
        send_as_ordered(&order);
    _exit(0);
}

static struct heard hear(const struct member *member)
{
    struct heard heard;
    struct pollfd wait = {member->numbers, POLLIN, 0};
    assert_int_equal(poll(&wait, 1, 10000), 1);
    assert_int_equal(read(member->numbers, &heard, sizeof(heard)), sizeof(heard));
    return heard;
}

static struct member start(void)
{
    int numbers[2], orders[2];
    assert_int_equal(pipe(numbers) | pipe(orders), 0);
    struct member member = {.pid = fork(), .numbers = numbers[0], .orders = orders[1]};
    if (member.pid == 0) {
        close(numbers[0]);
        close(orders[1]);
        be_member(orders[0], numbers[1]);
    }
    close(numbers[1]);
    close(orders[0]);
    member.slot = hear(&member).number;
    return member;
}

static void order(const struct member *member, const struct order *what)
{
    assert_int_equal(write(member->orders, what, sizeof(*what)), sizeof(*what));
}

static void stop(const struct member *member)
{
    int status;
    order(member, &(struct order){.count = 0});
    assert_int_equal(waitpid(member->pid, &status, 0), member->pid);
    close(member->orders);
    close(member->numbers);
    assert_int_equal(status, 0);
}

static void is_quiet(const struct member *member)
{
    struct pollfd wait = {member->numbers, POLLIN, 0};
    assert_int_equal(poll(&wait, 1, 50), 0);
}

/* Packets of one process to two that share the port come to each, in order, once. */
static void share(bool is_ipv4)
{
    enum { COUNT = 300 };
    struct member members[4];
    for (int i = 0; i < 4; i++)
        members[i] = start();
    for (uint32_t i = 0; i < 2; i++)
        order(&members[2 + i], &(struct order){.first = i * COUNT,
                                               .count = COUNT,
                                               .slots = {members[0].slot, members[1].slot},
                                               .is_ipv4 = is_ipv4});
    for (uint32_t to = 0; to < 2; to++) {
        uint32_t next[2] = {to, COUNT + to};
        for (int i = 0; i < COUNT; i++) {
            struct heard heard = hear(&members[to]);
            assert_memory_equal(heard.source, is_ipv4 ? lo_v4 : lo_v6, 16);
            assert_memory_equal(heard.dest, is_ipv4 ? lo_v4 : lo_v6, 16);
            assert_int_equal(heard.number, next[heard.number >= COUNT]);
            next[heard.number >= COUNT] += 2;
        }
        is_quiet(&members[to]);
    }
    for (int i = 0; i < 4; i++)
        stop(&members[i]);
}

static void sw_roce_send_mad__reaches_the_process_of_its_id_ipv4(void **state)
{
    (void)state;
    share(true);
}

static void sw_roce_send_mad__reaches_the_process_of_its_id_ipv6(void **state)
{
    (void)state;
    share(false);
}

/* With rules for what leaves, in the process that sends. */
static void sw_roce_send_mad__meets_the_rules_for_faults(void **state)
{
    (void)state;
    struct member receiver = start();
    char script[] = "/tmp/sw-mad-faults-XXXXXX", value[64];
    const char rules[] = "drop packet 2 opcode mad\nduplicate packet 3 opcode mad\n"
                         "drop opcode datagram\ncorrupt packet 5 opcode mad\n";
    int fd = mkstemp(script);
    assert_int_equal(write(fd, rules, sizeof(rules) - 1), sizeof(rules) - 1);
    close(fd);
    snprintf(value, sizeof(value), "@%s", script);
    setenv("SIDEWIRE_FAULTS", value, 1);
    struct member sender = start();
    unsetenv("SIDEWIRE_FAULTS");
    unlink(script);
    order(&sender,
          &(struct order){
              .first = 1, .count = 6, .slots = {receiver.slot, receiver.slot}, .is_ipv4 = true});
    const uint32_t expected[] = {1, 3, 4, 4, 5}; /* a rule counts what the one before has left */
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(hear(&receiver).number, expected[i]);
    is_quiet(&receiver);
    stop(&sender);
    stop(&receiver);
}

int main(void)
{
    if (namespace_enter(CLONE_NEWNET)) {
        print_message("SKIP: no network namespace of our own\n");
        return 77;
    }
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (ioctl(fd, SIOCSIFFLAGS, &request))
        return 1;
    close(fd);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_roce_mad_slot__of_answers_only),
        cmocka_unit_test(sw_roce_mad_slot__of_liveness),
        cmocka_unit_test(sw_roce_deliver_mad__drops_and_counts_what_is_none),
        cmocka_unit_test(sw_roce_send_mad__reaches_the_process_of_its_id_ipv4),
        cmocka_unit_test(sw_roce_send_mad__reaches_the_process_of_its_id_ipv6),
        cmocka_unit_test(sw_roce_send_mad__meets_the_rules_for_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
