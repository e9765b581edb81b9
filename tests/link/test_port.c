/* SPDX-License-Identifier: BSD-2-Clause */
/* In a network namespace of its own: the port is 4791, and the loopback's MTU changes. */
#include <errno.h>
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
#include "device/pub.h"
#include "link/roce/holder.h"
#include "link/roce/port.h"
#include "wire/bytes.h"

static const uint8_t lo_v4[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
static const uint8_t other_v4[16] = {[10] = 0xff, 0xff, 127, 0, 0, 2};
static const uint8_t lo_v6[16] = {[15] = 1};

#define KEPT 256
#define ACK 0x11 /* the opcode of RC */
static struct {
    uint32_t count;
    uint32_t calls; /* in which they came */
    struct sw_arrival last;
    uint32_t lens[KEPT];
    uint32_t order[KEPT]; /* PSNs */
    bool damaged;
} seen;
static bool are_strangers; /* all who send */

/* Payload byte i of packet n is n + i. */
static void keep_one(const uint8_t *bytes, uint32_t len_bytes)
{
    const uint8_t *payload = bytes + SW_BTH_BYTES;
    uint32_t n = sw_be24_load(bytes + 9); /* its PSN */
    uint32_t len = len_bytes - SW_BTH_BYTES - SW_ICRC_BYTES - (bytes[1] >> 4 & 3);
    if (bytes[0] == ACK)
        len = 0;
    for (uint32_t i = 0; i < len; i++)
        seen.damaged |= payload[i] != (uint8_t)(n + i);
    seen.lens[seen.count % KEPT] = len;
    seen.order[seen.count % KEPT] = n;
    seen.count++;
}

static bool keep(void *arg, const struct sw_arrival *arrival)
{
    (void)arg;
    for (uint32_t i = 0; i < arrival->count; i++)
        keep_one(arrival->bytes + (size_t)i * arrival->len_bytes, arrival->len_bytes);
    seen.last = *arrival;
    seen.calls++;
    return !are_strangers;
}

static void lo_set(short flags, int mtu)
{
    struct ifreq request = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    request.ifr_flags = flags;
    assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    request.ifr_mtu = mtu;
    assert_int_equal(ioctl(fd, SIOCSIFMTU, &request), 0);
    close(fd);
}

struct pair {
    struct sw_port one, two;
};

static int open_pair(void **state)
{
    struct pair *pair = calloc(1, sizeof(*pair));
    memset(&seen, 0, sizeof(seen));
    lo_set(IFF_UP, 65536);
    assert_int_equal(sw_port_open(&pair->one, SW_ROCE_PORT, 5, keep, NULL), 0);
    assert_int_equal(sw_port_open(&pair->two, SW_ROCE_PORT, 6, keep, NULL), 0);
    *state = pair;
    return 0;
}

static int close_pair(void **state)
{
    struct pair *pair = *state;
    sw_port_close(&pair->one);
    sw_port_close(&pair->two);
    free(pair);
    return 0;
}

static struct sw_roce_path path_to(struct sw_port *port, const uint8_t from[16],
                                   const uint8_t to[16])
{
    struct sw_roce_path path = {.sender = 3, .traffic_class = 0x62, .hop_limit = 9};
    assert_int_equal(sw_roce_path_set(&path, from, to, 0), 0);
    assert_int_equal(sw_port_aim(port, &path), 0);
    return path;
}

#define SEND_ONLY 0x04
#define SEND_MIDDLE 0x01
static uint8_t packet_opcode = SEND_ONLY;
static uint32_t packet_damage; /* of struct sw_outgoing */
static uint32_t packet_qp = 7; /* index of the QP it is for */
static uint8_t pattern[KEPT + SW_PACKET_PAYLOAD_MAX];

/* Packet n: to a QP of `slot`, from several pieces. */
static void add(struct sw_batch *batch, const struct sw_roce_path *path, uint32_t slot, uint32_t n,
                uint32_t len)
{
    struct sw_packet packet = {
        .bth = {.opcode = packet_opcode,
                .pkey = SW_PKEY_DEFAULT,
                .dest_qpn = sw_qpn_make(slot, packet_qp),
                .psn = n},
        .payload_len = len,
    };
    uint8_t header[SW_HEADERS_MAX];
    struct iovec pieces[3] = {{pattern + n, len / 3},
                              {pattern + n + len / 3, len / 3},
                              {pattern + n + len / 3 * 2, len - len / 3 * 2}};
    struct sw_outgoing out = {
        .path = path,
        .header = header,
        .header_bytes = (uint32_t)sw_packet_encode_headers(&packet, header, sizeof(header)),
        .pieces = pieces,
        .piece_count = 3,
        .payload_bytes = len,
        .damage = packet_damage,
    };
    sw_batch_add(batch, &out);
}

static void add_ack(struct sw_batch *batch, const struct sw_roce_path *path, uint32_t slot,
                    uint32_t n)
{
    const struct sw_packet packet = {
        .opcode = sw_opcode_of(ACK),
        .bth = {.opcode = ACK,
                .pkey = SW_PKEY_DEFAULT,
                .dest_qpn = sw_qpn_make(slot, packet_qp),
                .psn = n},
    };
    uint8_t header[SW_HEADERS_MAX];
    const struct sw_outgoing out = {
        .path = path,
        .header = header,
        .header_bytes = (uint32_t)sw_packet_encode_headers(&packet, header, sizeof(header)),
    };
    sw_batch_add(batch, &out);
}

/* Has both ports receive until there are so many packets. */
static void receive(struct pair *pair, uint32_t want)
{
    uint64_t limit_ns = sw_clock_ns() + 5 * SW_NS_PER_S;
    while (seen.count < want && sw_clock_ns() < limit_ns) {
        struct pollfd wait[2] = {{pair->one.epoll, POLLIN, 0}, {pair->two.epoll, POLLIN, 0}};
        poll(wait, 2, 100);
        sw_port_receive(&pair->one, sw_clock_ns(), true);
        sw_port_receive(&pair->two, sw_clock_ns(), true);
    }
    assert_int_equal(seen.count, want);
    assert_false(seen.damaged);
}

static void sw_port_open__another_users_port_is_reported(void **state)
{
    (void)state;
    char text[160];
    int told[2], done[2];
    assert_int_equal(pipe(told) | pipe(done), 0);
    pid_t pid = fork();
    if (pid == 0) { /* this user, but not sharing: to the kernel it is all one */
        struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(SW_ROCE_PORT)};
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        char c = (char)bind(fd, (struct sockaddr *)&any, sizeof(any));
        close(done[1]);
        _exit(write(told[1], &c, 1) != 1 || read(done[0], &c, 1) != 0);
    }
    char c = 1;
    assert_int_equal(read(told[0], &c, 1), 1);
    assert_int_equal(c, 0);
    close(done[0]);
    struct sw_port *port = calloc(1, sizeof(*port));
    lo_set(IFF_UP, 65536);
    int rc = sw_port_open(port, SW_ROCE_PORT, 5, keep, NULL);
    struct sw_roce_path path = {0};
    assert_int_equal(sw_roce_path_set(&path, lo_v4, lo_v4, 0), 0);
    assert_int_equal(rc ? rc : sw_port_aim(port, &path), -EADDRINUSE); /* IPv6 is there */
    sw_port_close(port);
    free(port);
    sw_holder_describe(SW_ROCE_PORT, text, sizeof(text));
    char wanted[64];
    snprintf(wanted, sizeof(wanted), "process %d (test_link_port) of user", (int)pid);
    assert_non_null(strstr(text, wanted));
    close(done[1]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    sw_holder_describe(SW_ROCE_PORT, text, sizeof(text));
    assert_string_equal(text, "nobody that can be seen");
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

static void came_in_order(uint32_t count)
{
    assert_int_equal(seen.count, count);
    assert_false(seen.damaged);
    for (uint32_t n = 0; n < count; n++)
        assert_int_equal(seen.order[n], n);
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
    uint32_t ears = pair->two.ear_count;
    sw_port_tidy(&pair->two, sw_clock_ns());
    assert_int_equal(pair->two.ear_count, ears);
    sw_port_tidy(&pair->two, sw_clock_ns() + 60 * SW_NS_PER_S);
    sw_port_tidy(&pair->two, sw_clock_ns() + 61 * SW_NS_PER_S);
    assert_int_equal(pair->two.ear_count, 3);
}

/* Its UDP sockets are closed: the kernel brings all to the other one. */
static void deafen(struct sw_port *port)
{
    for (uint32_t i = 0; i < port->ear_count;) {
        if (port->ears[i].kind == SW_EAR_UDP) {
            close(port->ears[i].fd);
            port->ears[i] = port->ears[--port->ear_count];
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
    const uint32_t ears = pair->two.ear_count;
    are_strangers = true;
    send_to_two(pair, 0, 3);
    receive(pair, 3);
    are_strangers = false;
    assert_int_equal(pair->two.ear_count, ears);
    send_to_two(pair, 3, 6);
    receive(pair, 6);
    assert_int_equal(pair->two.ear_count, ears + 1);
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

/* What the other process still has is then as good as lost, or late. */
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

static void sw_port_tidy__keeps_a_socket_with_something_in_it(void **state)
{
    struct pair *pair = *state;
    begin_to_move(pair);
    sw_port_receive(&pair->two, pair->two.due_ns, true);
    const uint32_t ears = pair->two.ear_count;
    send_to_two(pair, 10, 11);
    sw_port_tidy(&pair->two, sw_clock_ns() + 60 * SW_NS_PER_S);
    sw_port_tidy(&pair->two, sw_clock_ns() + 61 * SW_NS_PER_S);
    assert_int_equal(pair->two.ear_count, ears);
    sw_port_receive(&pair->two, sw_clock_ns(), true);
    assert_int_equal(seen.order[5], 10);
    sw_port_tidy(&pair->two, sw_clock_ns() + 61 * SW_NS_PER_S);
    assert_int_equal(pair->two.ear_count, ears - 1);
}

/* Who tidies may have looked at the clock before the packet came. */
static void sw_port_tidy__keeps_a_socket_that_was_just_heard(void **state)
{
    struct pair *pair = *state;
    const uint64_t before_ns = sw_clock_ns();
    begin_to_move(pair);
    sw_port_receive(&pair->two, pair->two.due_ns, true);
    const uint32_t ears = pair->two.ear_count;
    for (int i = 0; i < 3; i++)
        sw_port_tidy(&pair->two, before_ns + i * SW_NS_PER_S);
    assert_int_equal(pair->two.ear_count, ears);
    send_to_two(pair, 10, 11);
    sw_port_receive(&pair->two, sw_clock_ns(), true);
    assert_int_equal(seen.order[5], 10);
}

/* What comes while it goes is received by it or by the port, and the flow can move here again. */
static void sw_port_tidy__loses_nothing(void **state)
{
    struct pair *pair = *state;
    begin_to_move(pair);
    receive(pair, 10);
    const uint32_t before = seen.count, ears = pair->two.ear_count;
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
        assert_in_range(pair->two.ear_count, 1, ears + 1);
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

/* What waited for others is handed on, and nothing more comes to the one that ends. */
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

/* An ACK that rides with a request was ready before it (unsaid.c). */
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
    if (namespace_enter(CLONE_NEWNET)) {
        print_message("SKIP: no network namespace of our own\n");
        return 77;
    }
    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = (uint8_t)i;
#define WITH_PAIR(function) cmocka_unit_test_setup_teardown(function, open_pair, close_pair)
    const struct CMUnitTest tests[] = {
        WITH_PAIR(sw_port_receive__an_ack_behind_a_request_is_looked_at_first),
        WITH_PAIR(sw_port_receive__an_ack_behind_answers_keeps_its_place),
        cmocka_unit_test(sw_port_open__another_users_port_is_reported),
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
        WITH_PAIR(sw_port_receive__finds_the_right_process),
        WITH_PAIR(sw_port_receive__opens_no_socket_for_a_stranger),
        WITH_PAIR(sw_port_receive__keeps_the_order_of_a_flow_that_moves),
        WITH_PAIR(sw_port_receive__waits_for_another_process_for_a_while),
        WITH_PAIR(sw_port_receive__keeps_what_another_process_has_no_room_for),
        WITH_PAIR(sw_port_tidy__keeps_a_socket_with_something_in_it),
        WITH_PAIR(sw_port_tidy__keeps_a_socket_that_was_just_heard),
        WITH_PAIR(sw_port_tidy__loses_nothing),
        WITH_PAIR(sw_port_leave__loses_nothing_of_others),
        WITH_PAIR(sw_port_receive__of_a_process_that_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
