/* SPDX-License-Identifier: BSD-2-Clause */
/* In a network namespace of its own: the port is 4791, and the loopback's MTU changes. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/rules/pub.h"
#include "link/roce/port/holder.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"
#include "link/roce/port/tx.h"
#include "port_rig.h"
#include "wire/bytes.h"

static const uint8_t other_v4[16] = {[10] = 0xff, 0xff, 127, 0, 0, 2};
static const uint8_t lo_v6[16] = {[15] = 1};

/* A process of this user that has the port of IPv4 and does not share it: to the kernel that is as
 * good as another user. */
static pid_t hold_port(const char *address, int *done)
{
    int told[2], ends[2];
    assert_int_equal(pipe(told) | pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct sockaddr_in own = {.sin_family = AF_INET,
                                  .sin_port = htons(SW_ROCE_PORT),
                                  .sin_addr.s_addr = inet_addr(address)};
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        char c = (char)bind(fd, (struct sockaddr *)&own, sizeof(own));
        close(ends[1]);
        _exit(write(told[1], &c, 1) != 1 || read(ends[0], &c, 1) != 0);
    }
    char c = 1;
    assert_int_equal(read(told[0], &c, 1), 1);
    assert_int_equal(c, 0);
    close(told[0]);
    close(told[1]);
    close(ends[0]);
    *done = ends[1];
    return pid;
}

static void let_go(pid_t pid, int done)
{
    close(done);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* What the port says on standard error when it aims at an IPv4 peer. */
static void aim_and_read(char *said, size_t room)
{
    struct sw_port *port = calloc(1, sizeof(*port));
    struct sw_roce_path path = {0};
    FILE *file = tmpfile();
    const int own = dup(2);
    assert_non_null(file);
    dup2(fileno(file), 2);
    int rc = sw_port_open(port, SW_ROCE_PORT, 5, keep, NULL);
    assert_int_equal(sw_roce_path_set(&path, lo_v4, lo_v4, 0), 0);
    rc = rc ? rc : sw_port_aim(port, &path); /* IPv6 is there */
    dup2(own, 2);
    close(own);
    assert_int_equal(rc, -EADDRINUSE);
    rewind(file);
    said[fread(said, 1, room - 1, file)] = '\0';
    fclose(file);
    sw_port_close(port);
    free(port);
}

static void sw_port_open__another_users_port_is_reported(void **state)
{
    (void)state;
    char text[160], said[512], wanted[64];
    struct sw_holder holder;
    int done;
    pid_t pid = hold_port("0.0.0.0", &done);
    snprintf(wanted, sizeof(wanted), "process %d (test_link_port) of user", (int)pid);
    lo_set(IFF_UP, 65536);
    aim_and_read(said, sizeof(said));
    assert_non_null(strstr(said, "UDP port 4791 of IPv4"));
    assert_non_null(strstr(said, wanted));
    sw_holder_find(SW_ROCE_PORT, true, &holder);
    assert_int_equal(holder.pid, pid);
    sw_holder_describe(&holder, text, sizeof(text));
    assert_non_null(strstr(text, wanted));
    assert_true(sw_holder_keeps_out(SW_ROCE_PORT, true));
    assert_false(sw_holder_keeps_out(SW_ROCE_PORT, false));
    let_go(pid, done);
    sw_holder_find(SW_ROCE_PORT, true, &holder);
    sw_holder_describe(&holder, text, sizeof(text));
    assert_string_equal(text, "nobody that can be seen");
    assert_false(sw_holder_keeps_out(SW_ROCE_PORT, true));
}

/* A process that has one address of the host keeps out those who want all of them. */
static void sw_holder__of_one_address_keeps_out(void **state)
{
    (void)state;
    int done;
    lo_set(IFF_UP, 65536);
    pid_t pid = hold_port("127.0.0.1", &done);
    assert_true(sw_holder_keeps_out(SW_ROCE_PORT, true));
    let_go(pid, done);
}

static void sw_holder__who_shares_keeps_nobody_out(void **state)
{
    (void)state;
    assert_false(sw_holder_keeps_out(SW_ROCE_PORT, true));
    assert_false(sw_holder_keeps_out(SW_ROCE_PORT, false));
}

static void sw_port_aim__needs_two_addresses_of_one_family(void **state)
{
    struct pair *pair = *state;
    struct sw_roce_path path = {0};
    const uint8_t none[16] = {0};
    assert_int_equal(sw_roce_path_set(&path, lo_v4, lo_v6, 0), -EINVAL);
    assert_int_equal(sw_roce_path_set(&path, none, lo_v6, 0), -EINVAL);
    assert_int_equal(sw_roce_path_set(&path, lo_v6, lo_v6, 0), 0);
    assert_int_equal(sw_port_aim(&pair->one, &path), 0);
    assert_in_range(pair->one.source_ports[false][path.sender], 0xc000, 0xffff);
}

static void exchange(struct pair *pair, const uint8_t from[16], const uint8_t to[16])
{
    static const uint32_t lens[] = {0,   1,    2,    3,    4,    511,  512,  513, 1024, 1024, 1024,
                                    100, 4096, 4096, 4096, 4096, 4093, 4096, 8,   8,    8};
    enum { COUNT = sizeof(lens) / sizeof(lens[0]) };
    struct sw_roce_path path = path_to(&pair->one, from, to);
    struct sw_batch *batch = sw_batch_open(&pair->one);
    for (uint32_t n = 0; n < COUNT; n++)
        add(batch, &path, 6, n, lens[n]);
    sw_batch_close(batch);
    receive(pair, COUNT);
    for (uint32_t n = 0; n < COUNT; n++)
        assert_int_equal(seen.lens[n], lens[n]);
    assert_memory_equal(&seen.last.source, from, 16);
    assert_memory_equal(&seen.last.dest, to, 16);
    assert_int_equal(seen.last.source_port,
                     pair->one.source_ports[from[0] || !from[10] ? 0 : 1][3]);
    assert_int_equal(seen.last.traffic_class, 0x62);
    assert_int_equal(seen.last.hop_limit, 9);
    assert_in_range(sw_port_counter(&pair->one, SW_PORT_TX_BATCHES), 1, COUNT - 1); /* grouped */
    assert_int_equal(sw_port_counter(&pair->one, SW_PORT_TX_PACKETS), COUNT);
}

static void sw_batch_add__ipv4(void **state)
{
    exchange(*state, other_v4, lo_v4);
}

static void sw_batch_add__ipv6(void **state)
{
    exchange(*state, lo_v6, lo_v6);
}

static void sw_batch_add__more_than_a_batch(void **state)
{
    struct pair *pair = *state;
    struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    struct sw_batch *batch = sw_batch_open(&pair->one);
    for (uint32_t n = 0; n < 200; n++)
        add(batch, &path, 5 + n % 2, n, 2048);
    sw_batch_close(batch);
    receive(pair, 200);
}

/* Packets of some flows in turn, each from a path of its own that is forgotten then. */
static void add_of_flows(struct pair *pair, uint32_t flows, uint32_t count)
{
    for (uint32_t n = 0; n < count; n++) {
        struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
        path.sender = (uint8_t)(n % flows % SW_PORT_SENDERS);
        path.traffic_class = (uint8_t)(n % flows / SW_PORT_SENDERS * 4);
        assert_int_equal(sw_port_aim(&pair->one, &path), 0);
        struct sw_batch *batch = sw_batch_open(&pair->one);
        add(batch, &path, 6, n, 256);
        sw_batch_close(batch);
        memset(&path, 0xee, sizeof(path));
    }
}

static void sw_batch_gather__each_flow_has_a_message(void **state)
{
    struct pair *pair = *state;
    enum { FLOWS = 3, COUNT = 30 };
    sw_batch_gather(&pair->one);
    add_of_flows(pair, FLOWS, COUNT);
    assert_int_equal(sw_port_counter(&pair->one, SW_PORT_TX_BATCHES), 0);
    sw_batch_gather_end();
    assert_int_equal(sw_port_counter(&pair->one, SW_PORT_TX_BATCHES), FLOWS);
    receive(pair, COUNT);
    add_of_flows(pair, FLOWS, COUNT); /* which no longer gather */
    assert_int_equal(sw_port_counter(&pair->one, SW_PORT_TX_BATCHES), FLOWS + COUNT);
    receive(pair, 2 * COUNT);
}

static void sw_batch_gather__more_flows_than_it_has_room_for(void **state)
{
    struct pair *pair = *state;
    enum { FLOWS = 3 * SW_PORT_SENDERS, COUNT = 2 * FLOWS };
    sw_batch_gather(&pair->one);
    add_of_flows(pair, FLOWS, COUNT);
    sw_batch_gather_flush();
    assert_int_equal(sw_port_counter(&pair->one, SW_PORT_TX_PACKETS), COUNT);
    sw_batch_gather_end();
    assert_int_equal(sw_port_counter(&pair->one, SW_PORT_TX_PACKETS), COUNT);
    receive(pair, COUNT);
}

/* A flow's packets keep their order, whatever sizes and others are between them. */
static void sw_batch_gather__keeps_the_order_of_a_flow(void **state)
{
    static const uint32_t lens[] = {512, 512, 100, 512, 1024, 300, 300, 2000, 8, 8, 512};
    enum { COUNT = sizeof(lens) / sizeof(lens[0]) };
    struct pair *pair = *state;
    struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4), other = path;
    other.sender++;
    assert_int_equal(sw_port_aim(&pair->one, &other), 0);
    sw_batch_gather(&pair->one);
    struct sw_batch *batch = sw_batch_open(&pair->one);
    for (uint32_t n = 0; n < COUNT; n++) {
        add(batch, &path, 6, n, lens[n]);
        if (n == 3)
            add(batch, &other, 99, n, 512); /* for nobody */
    }
    sw_batch_close(batch);
    sw_batch_gather_end();
    receive(pair, COUNT);
    for (uint32_t n = 0; n < COUNT; n++)
        assert_int_equal(seen.order[n], n);
}

static void sw_batch_flush__without_segmentation(void **state)
{
    struct pair *pair = *state;
    atomic_store(&pair->one.no_gso, true);
    struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    struct sw_batch *batch = sw_batch_open(&pair->one);
    for (uint32_t n = 0; n < 40; n++)
        add(batch, &path, 6, n, 1024);
    sw_batch_close(batch);
    assert_int_equal(sw_port_counter(&pair->one, SW_PORT_TX_BATCHES), 40);
    receive(pair, 40);
}

/* They are not sent, those that fit are, and it is counted. */
static void sw_batch_flush__packets_that_do_not_fit(void **state)
{
    struct pair *pair = *state;
    lo_set(IFF_UP, 1500);
    struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    struct sw_batch *batch = sw_batch_open(&pair->one);
    add(batch, &path, 6, 0, 2048);
    add(batch, &path, 6, 1, 2048);
    add(batch, &path, 6, 2, 1024);
    add(batch, &path, 6, 3, 4096);
    sw_batch_close(batch);
    receive(pair, 1);
    assert_int_equal(seen.lens[0], 1024);
    assert_int_equal(sw_port_counter(&pair->one, SW_PORT_TX_TOO_LONG), 3);
    assert_false(atomic_load(&pair->one.no_gso));
}

static int send_raw(const uint8_t *bytes, size_t len)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(SW_ROCE_PORT)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ssize_t sent = sendto(fd, bytes, len, 0, (struct sockaddr *)&to, sizeof(to));
    close(fd);
    return sent == (ssize_t)len ? 0 : -1;
}

static void sw_port_receive__drops_what_is_no_packet(void **state)
{
    struct pair *pair = *state;
    static const size_t lens[] = {0, 1, 11, 12, 15, 16, 17, 20, 300};
    const uint8_t bytes[300] = {0}; /* for QP 0, which is nobody's */
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
        assert_int_equal(send_raw(bytes, lens[i]), 0);
    struct sw_port *ports[] = {&pair->one, &pair->two};
    uint64_t malformed = 0, broken = 0;
    uint64_t limit_ns = sw_clock_ns() + 5 * SW_NS_PER_S;
    while (malformed + broken < 9 && sw_clock_ns() < limit_ns) {
        malformed = broken = 0;
        for (int i = 0; i < 2; i++) {
            sw_port_receive(ports[i], sw_clock_ns(), true);
            malformed += sw_port_counter(ports[i], SW_PORT_RX_MALFORMED);
            broken += sw_port_counter(ports[i], SW_PORT_RX_BAD_ICRC);
        }
    }
    assert_int_equal(malformed, 6);
    assert_int_equal(broken, 3);
    assert_int_equal(seen.count, 0);
}

/* Packets of 1 KiB, of a kind that makes runs; `damaged`: one of them, or
 * none. */
static void send_run(struct pair *pair, uint32_t count, uint32_t damaged)
{
    struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    struct sw_batch *batch = sw_batch_open(&pair->one);
    packet_opcode = SEND_MIDDLE;
    for (uint32_t n = 0; n < count; n++) {
        packet_damage = n == damaged ? 8 * 500 + 1 : 0;
        add(batch, &path, 6, n, 1024);
    }
    packet_opcode = SEND_ONLY;
    packet_damage = 0;
    sw_batch_close(batch);
}

static void sw_port_receive__a_run_is_delivered_as_one(void **state)
{
    struct pair *pair = *state;
    enum { COUNT = 200 };
    send_run(pair, COUNT, COUNT); /* more than a message of the kernel holds */
    receive(pair, COUNT);
    came_in_order(COUNT);
    assert_in_range(seen.calls, 2, COUNT / 10);
    assert_int_equal(seen.last.len_bytes, SW_BTH_BYTES + 1024 + SW_ICRC_BYTES);
    assert_int_equal(sw_port_counter(&pair->two, SW_PORT_RX_PACKETS), COUNT);
}

/* It ends the run; what came before it and after it is delivered. */
static void sw_port_receive__a_damaged_packet_within_a_run(void **state)
{
    struct pair *pair = *state;
    enum { COUNT = 40 };
    for (uint32_t damaged = 0; damaged < COUNT; damaged += 13) { /* first, within, last */
        const uint64_t before = sw_port_counter(&pair->two, SW_PORT_RX_BAD_ICRC);
        memset(&seen, 0, sizeof(seen));
        send_run(pair, COUNT, damaged);
        receive(pair, COUNT - 1);
        for (uint32_t n = 0; n < COUNT - 1; n++)
            assert_int_equal(seen.order[n], n < damaged ? n : n + 1);
        assert_in_range(seen.calls, damaged && damaged < COUNT - 1 ? 2 : 1, COUNT / 4);
        assert_int_equal(sw_port_counter(&pair->two, SW_PORT_RX_BAD_ICRC), before + 1);
    }
}

/* Others are not: here each is a message. */
static void sw_port_receive__what_is_no_run_comes_one_by_one(void **state)
{
    struct pair *pair = *state;
    enum { COUNT = 40 };
    struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    struct sw_batch *batch = sw_batch_open(&pair->one);
    for (uint32_t n = 0; n < COUNT; n++)
        add(batch, &path, 6, n, 1024);
    sw_batch_close(batch);
    receive(pair, COUNT);
    assert_int_equal(seen.calls, COUNT);
}

/* An ACK that rides with a request was ready before it (delayed_ack.c). */
static void sw_port_receive__an_ack_behind_a_request_is_looked_at_first(void **state)
{
    struct pair *pair = *state;
    const struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    for (uint32_t i = 0; i < 3; i++) {
        struct sw_batch *batch = sw_batch_open(&pair->one);
        add(batch, &path, 6, 10 * i + 1, 64);
        add(batch, &path, 6, 10 * i + 2, 64);
        add_ack(batch, &path, 6, 10 * i + 3);
        sw_batch_close(batch);
        receive(pair, 3 * (i + 1));
    }
    static const uint32_t expected[] = {3, 1, 2, 13, 11, 12, 23, 21, 22};
    assert_memory_equal(seen.order, expected, sizeof(expected));
}

/* Behind answers it keeps its place: it would speak of some that are not here yet. */
static void sw_port_receive__an_ack_behind_answers_keeps_its_place(void **state)
{
    enum { READ_RESPONSE_MIDDLE = 0x0e };
    struct pair *pair = *state;
    const struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    struct sw_batch *batch = sw_batch_open(&pair->one);
    packet_opcode = READ_RESPONSE_MIDDLE;
    add(batch, &path, 6, 1, 64);
    add_ack(batch, &path, 6, 2);
    sw_batch_close(batch);
    packet_opcode = SEND_ONLY;
    receive(pair, 2);
    static const uint32_t expected[] = {1, 2};
    assert_memory_equal(seen.order, expected, sizeof(expected));
}

/* As it does where it is for another queue pair: of whom those before it are is not known. */
static void sw_port_receive__an_ack_behind_others_requests_keeps_its_place(void **state)
{
    struct pair *pair = *state;
    const struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    struct sw_batch *batch = sw_batch_open(&pair->one);
    add(batch, &path, 6, 1, 64);
    packet_qp = 8;
    add(batch, &path, 6, 2, 64);
    add_ack(batch, &path, 6, 3);
    packet_qp = 7;
    sw_batch_close(batch);
    receive(pair, 3);
    static const uint32_t expected[] = {1, 2, 3};
    assert_memory_equal(seen.order, expected, sizeof(expected));
}

int main(void)
{
    const int rc = enter_port_namespace();
    if (rc)
        return rc;
    const struct CMUnitTest tests[] = {
        WITH_PAIR(sw_port_receive__an_ack_behind_a_request_is_looked_at_first),
        WITH_PAIR(sw_port_receive__an_ack_behind_answers_keeps_its_place),
        cmocka_unit_test(sw_port_open__another_users_port_is_reported),
        cmocka_unit_test(sw_holder__of_one_address_keeps_out),
        WITH_PAIR(sw_holder__who_shares_keeps_nobody_out),
        WITH_PAIR(sw_port_aim__needs_two_addresses_of_one_family),
        WITH_PAIR(sw_batch_add__ipv4),
        WITH_PAIR(sw_batch_add__ipv6),
        WITH_PAIR(sw_batch_add__more_than_a_batch),
        WITH_PAIR(sw_port_receive__an_ack_behind_others_requests_keeps_its_place),
        WITH_PAIR(sw_batch_gather__each_flow_has_a_message),
        WITH_PAIR(sw_batch_gather__more_flows_than_it_has_room_for),
        WITH_PAIR(sw_batch_gather__keeps_the_order_of_a_flow),
        WITH_PAIR(sw_batch_flush__without_segmentation),
        WITH_PAIR(sw_batch_flush__packets_that_do_not_fit),
        WITH_PAIR(sw_port_receive__drops_what_is_no_packet),
        WITH_PAIR(sw_port_receive__a_run_is_delivered_as_one),
        WITH_PAIR(sw_port_receive__a_damaged_packet_within_a_run),
        WITH_PAIR(sw_port_receive__what_is_no_run_comes_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
