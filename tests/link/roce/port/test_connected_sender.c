/* SPDX-License-Identifier: BSD-2-Clause */
/* In a network namespace of its own: long messages of a port to itself over the loopback. */
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "../preload/namespace.h"
#include "base/clock.h"
#include "device/rules/pub.h"
#include "link/roce/port/arrival.h"
#include "link/roce/port/connected_sender.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"
#include "link/roce/port/tx.h"
#include "wire/bytes.h"

static const uint8_t lo_v4[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
static const uint8_t lo_v6[16] = {[15] = 1};

enum { SLOT = 5, PAYLOAD = 1024, PACKETS = 62 /* of a message */, MANY = 300 };
#define DATAGRAM (SW_BTH_BYTES + PAYLOAD + SW_ICRC_BYTES)

static struct sw_port port;
static uint8_t pattern[256 + PAYLOAD]; /* byte i of packet n is n + i */
static struct {
    uint32_t count, next;
    bool is_damaged, is_out_of_order;
} seen;

static bool keep(void *arg, const struct sw_arrival *arrival)
{
    (void)arg;
    for (uint32_t i = 0; i < arrival->count; i++) {
        const uint8_t *bytes = arrival->bytes + (size_t)i * arrival->len_bytes;
        const uint32_t n = sw_be24_load(bytes + 9);
        seen.is_damaged |= arrival->len_bytes != DATAGRAM ||
                           memcmp(bytes + SW_BTH_BYTES, pattern + n % 256, PAYLOAD) != 0;
        seen.is_out_of_order |= n != seen.next;
        seen.next = n + 1;
        seen.count++;
    }
    return true;
}

static void set_mtu(int mtu)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    request.ifr_mtu = mtu;
    assert_int_equal(ioctl(fd, SIOCSIFMTU, &request), 0);
    close(fd);
}

static int open_port(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof(seen));
    set_mtu(65536);
    const int rc = sw_port_open(&port, SW_ROCE_PORT, SLOT, keep, NULL);
    sw_lock_acquire(&port.rx_lock); /* the test alone receives */
    return rc;
}

static int close_port(void **state)
{
    (void)state;
    sw_port_close(&port);
    return 0;
}

static struct sw_roce_path path_to(const uint8_t address[16])
{
    struct sw_roce_path path = {.sender = 3, .traffic_class = 2};
    assert_int_equal(sw_roce_path_set(&path, address, address, 0), 0);
    assert_int_equal(sw_port_aim(&port, &path), 0);
    return path;
}

static void add_packets(struct sw_batch *batch, const struct sw_roce_path *path, uint32_t n,
                        uint32_t count)
{
    for (uint32_t i = n; i < n + count; i++) {
        const struct sw_packet packet = {
            .bth = {.opcode = 0x04,
                    .pkey = SW_PKEY_DEFAULT,
                    .dest_qpn = sw_qpn_make(SLOT, 7),
                    .psn = i},
            .payload_len = PAYLOAD,
        };
        uint8_t header[SW_HEADERS_MAX];
        const struct iovec piece = {pattern + i % 256, PAYLOAD};
        const struct sw_outgoing out = {
            .path = path,
            .header = header,
            .header_bytes = (uint32_t)sw_packet_encode_headers(&packet, header, sizeof(header)),
            .pieces = &piece,
            .piece_count = 1,
            .payload_bytes = PAYLOAD,
        };
        sw_batch_add(batch, &out);
    }
}

/* One message of `count` packets from n on. */
static void send_packets(const struct sw_roce_path *path, uint32_t n, uint32_t count)
{
    struct sw_batch *batch = sw_batch_open(&port);
    add_packets(batch, path, n, count);
    sw_batch_close(batch);
}

static void send_message(const struct sw_roce_path *path, uint32_t n)
{
    send_packets(path, n, PACKETS);
}

static void receive(uint32_t want)
{
    const uint64_t limit_ns = sw_clock_ns() + 5 * SW_NS_PER_S;
    while (seen.count < want && sw_clock_ns() < limit_ns) {
        struct pollfd wait = {port.epoll, POLLIN, 0};
        poll(&wait, 1, 100);
        sw_port_receive(&port, sw_clock_ns(), true);
    }
    assert_int_equal(seen.count, want);
}

/* Messages that arrive, one after the other. Returns how many have been sent. */
static uint32_t converse(struct sw_roce_path *path, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        const uint64_t now_ns = sw_clock_ns();
        send_message(path, i * PACKETS);
        receive((i + 1) * PACKETS);
        path->heard_ns = now_ns;
    }
    return to;
}

/* The same, of one packet each and of two by turns. Returns how many packets have been sent. */
static uint32_t converse_shortly(struct sw_roce_path *path, uint32_t from, uint32_t messages)
{
    for (uint32_t i = 0; i < messages; i++) {
        const uint64_t now_ns = sw_clock_ns();
        const uint32_t count = 1 + i % 2;
        send_packets(path, from, count);
        receive(from += count);
        path->heard_ns = now_ns;
    }
    return from;
}

/* With a ring. */
static struct sw_connected_sender *open_one(struct sw_roce_path *path, uint32_t *sent)
{
    *sent = converse(path, 0, 160);
    struct sw_connected_sender *sender = sw_connected_sender_claim(&port, path);
    assert_non_null(sender);
    return sender;
}

static void check_all_arrived(uint32_t messages)
{
    assert_int_equal(seen.count, messages * PACKETS);
    assert_false(seen.is_damaged);
    assert_false(seen.is_out_of_order);
    assert_int_equal(sw_port_counter(&port, SW_PORT_TX_DROPPED), 0);
    assert_int_equal(sw_port_counter(&port, SW_PORT_RX_BAD_ICRC), 0);
}

static void connected_sender__keeps_bytes_and_order(void **state)
{
    (void)state;
    struct sw_roce_path paths[] = {path_to(lo_v4), path_to(lo_v6)};
    for (int i = 0; i < 2; i++) {
        uint32_t sent;
        memset(&seen, 0, sizeof(seen));
        sw_connected_sender_release(open_one(&paths[i], &sent));
        check_all_arrived(converse(&paths[i], sent, MANY));
    }
}

/* The message that is full arrives while the next one is filled, if there is haste. */
static void sw_batch_hurry__until_the_flush(void **state)
{
    (void)state;
    struct sw_roce_path path = path_to(lo_v4);
    uint32_t sent;
    sw_connected_sender_release(open_one(&path, &sent));
    for (uint32_t hurries = 0; hurries < 2; hurries++, sent += 2) {
        struct sw_batch *batch = sw_batch_open(&port);
        path.heard_ns = sw_clock_ns();
        if (hurries)
            sw_batch_hurry(batch);
        add_packets(batch, &path, sent * PACKETS, PACKETS);
        sw_port_receive(&port, sw_clock_ns(), true);
        assert_int_equal(seen.count, sent * PACKETS); /* an ACK might still join it */
        add_packets(batch, &path, (sent + 1) * PACKETS, PACKETS);
        sw_port_receive(&port, sw_clock_ns(), true);
        assert_int_equal(seen.count, (sent + hurries) * PACKETS);
        sw_batch_close(batch);
        receive((sent + 2) * PACKETS);
    }
    struct sw_batch *batch = sw_batch_open(&port); /* there is none any more */
    path.heard_ns = sw_clock_ns();
    add_packets(batch, &path, sent * PACKETS, 2 * PACKETS);
    sw_port_receive(&port, sw_clock_ns(), true);
    assert_int_equal(seen.count, sent * PACKETS);
    sw_batch_close(batch);
    receive((sent + 2) * PACKETS);
    check_all_arrived(sent + 2);
}

static void connected_sender__is_for_streams_that_are_answered(void **state)
{
    (void)state;
    struct sw_roce_path path = path_to(lo_v4);
    for (uint32_t i = 0; i < MANY; i++) {
        send_message(&path, i * PACKETS);
        receive((i + 1) * PACKETS);
    }
    assert_null(sw_connected_sender_claim(&port, &path)); /* its rooms would never be free again */
}

static void connected_sender__another_path_has_none(void **state)
{
    (void)state;
    uint32_t sent;
    struct sw_roce_path path = path_to(lo_v4), other = path;
    sw_connected_sender_release(open_one(&path, &sent));
    other.traffic_class = 0x22;
    assert_null(sw_connected_sender_claim(&port, &other));
}

static int capture(void)
{
    const int room = 8 << 20, fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_IP));
    const struct sockaddr_ll lo = {.sll_family = AF_PACKET,
                                   .sll_protocol = htons(ETH_P_IP),
                                   .sll_ifindex = (int)if_nametoindex("lo")};
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
    assert_int_equal(bind(fd, (const struct sockaddr *)&lo, sizeof(lo)), 0);
    return fd;
}

/* The packets of a message as it was captured, whose identifications begin with the header's. */
static uint32_t check_ids(const uint8_t *ip, ssize_t len, const struct sw_icrc_flow *flow)
{
    uint32_t count = 0;
    for (const uint8_t *at = ip + SW_IPV4_BYTES + SW_UDP_BYTES; at < ip + len; at += DATAGRAM) {
        const uint16_t id = (uint16_t)(sw_be16_load(ip + 4) + count++);
        struct sw_ip_id found = {.id = id, .dont_fragment = ip[6] >> 6 & 1};
        struct sw_icrc_prefix prefix = {0};
        struct sw_icrc_rewind rewind = {0};
        assert_true(sw_icrc_check(flow, &prefix, at, DATAGRAM, &rewind, &found));
        assert_int_equal(found.id, id);
        assert_true(found.dont_fragment);
    }
    return count;
}

/* All that was captured. Returns the packets; adds the messages that are numbered. Messages of a
 * ring show what is in their rooms by now. */
static uint32_t check_captured(int fd, const struct sw_icrc_flow *flow, uint32_t *numbered)
{
    static uint8_t bytes[1 << 17];
    uint32_t checked = 0;
    for (ssize_t len; (len = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0;) {
        if (sw_be16_load(bytes + SW_IPV4_BYTES + 2) != SW_ROCE_PORT)
            continue;
        checked += check_ids(bytes, len, flow);
        *numbered += sw_be16_load(bytes + 4) != 0;
    }
    return checked;
}

/* What a peer sees that, unlike a socket, knows the identification: hardware, or a kernel. */
static void connected_sender__packets_have_the_identification_that_their_icrc_says(void **state)
{
    (void)state;
    struct sw_roce_path path = path_to(lo_v4);
    uint32_t sent, numbered = 0;
    sw_connected_sender_release(open_one(&path, &sent));
    const int fd = capture();
    if (fd < 0) {
        print_message("SKIP: no packet socket\n");
        skip();
    }
    sent = converse(&path, sent, sent + 20);
    /* The loopback shows each when it goes and when it comes. */
    assert_true(check_captured(fd, &path.icrc, &numbered) >= 20 * PACKETS);
    assert_true(numbered >= 19); /* so they left by the sender */
    numbered = 0;
    converse_shortly(&path, sent * PACKETS, 20);
    assert_true(check_captured(fd, &path.icrc, &numbered) >= 30);
    assert_true(numbered >= 19);
    close(fd);
}

static void connected_sender__short_messages_have_it_without_a_ring(void **state)
{
    (void)state;
    struct sw_roce_path path = path_to(lo_v4);
    uint32_t numbered = 0, sent = converse_shortly(&path, 0, 1100);
    const int fd = capture();
    if (fd < 0) {
        print_message("SKIP: no packet socket\n");
        skip();
    }
    converse_shortly(&path, sent, 20);
    assert_true(check_captured(fd, &path.icrc, &numbered) >= 30);
    assert_true(numbered >= 19);
    close(fd);
}

static int descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 8192; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void connected_sender__many_short_messages_have_a_connected_socket(void **state)
{
    (void)state;
    struct sw_roce_path paths[] = {path_to(lo_v4), path_to(lo_v6)};
    for (int i = 0; i < 2; i++) {
        const int before = descriptors();
        const uint32_t rx_sockets = port.rx_socket_count;
        memset(&seen, 0, sizeof(seen));
        uint32_t sent = converse_shortly(&paths[i], 0, 500);
        assert_null(sw_connected_sender_claim(&port, &paths[i]));
        sent = converse_shortly(&paths[i], sent, 1000);
        struct sw_connected_sender *sender = sw_connected_sender_claim(&port, &paths[i]);
        assert_non_null(sender);
        sw_connected_sender_release(sender);
        const int heard =
            (int)(port.rx_socket_count - rx_sockets);        /* its receiver asks for the flow */
        assert_int_equal(descriptors(), before + 1 + heard); /* and no ring */
        converse_shortly(&paths[i], sent, 300);
        assert_false(seen.is_damaged);
        assert_false(seen.is_out_of_order);
        assert_int_equal(sw_port_counter(&port, SW_PORT_RX_BAD_ICRC), 0);
    }
}

/* The socket cuts up what it is spliced as it did the last time, unless it is told otherwise. */
static void connected_sender__short_and_long_messages_share_it(void **state)
{
    (void)state;
    struct sw_roce_path path = path_to(lo_v4);
    uint32_t sent;
    sw_connected_sender_release(open_one(&path, &sent));
    uint32_t packets = sent * PACKETS;
    for (uint32_t i = 0; i < 50; i++) {
        packets = converse_shortly(&path, packets, 3);
        send_message(&path, packets);
        receive(packets += PACKETS);
        path.heard_ns = sw_clock_ns();
    }
    assert_false(seen.is_damaged);
    assert_false(seen.is_out_of_order);
    assert_int_equal(sw_port_counter(&port, SW_PORT_TX_DROPPED), 0);
    assert_int_equal(sw_port_counter(&port, SW_PORT_RX_BAD_ICRC), 0);
}

/* An unconnected socket does not hear that nobody is there, either. */
static void connected_sender__a_peer_that_is_not_there_costs_no_more(void **state)
{
    (void)state;
    static const uint8_t nobody[16] = {[10] = 0xff, 0xff, 127, 0, 0, 77};
    struct sw_roce_path path = path_to(lo_v4), gone;
    converse_shortly(&path, 0, 1100);
    gone = path;
    gone.dest_port = SW_ROCE_PORT + 1; /* where nobody listens */
    memcpy(&gone.dest, nobody, sizeof(nobody));
    for (uint32_t i = 0; i < 1100; i++)
        send_packets(&gone, i, 1);
    struct sw_connected_sender *sender = sw_connected_sender_claim(&port, &gone);
    assert_non_null(sender);
    sw_connected_sender_release(sender);
    assert_int_equal(sw_port_counter(&port, SW_PORT_TX_DROPPED), 0);
}

static void connected_sender__a_room_is_free_once_something_sent_later_has_arrived(void **state)
{
    (void)state;
    uint32_t sent, rooms = 0;
    struct sw_roce_path path = path_to(lo_v4);
    struct sw_connected_sender *sender = open_one(&path, &sent);
    static const uint8_t message[2 * SW_CONNECTED_SENDER_ROOM_BYTES];
    uint16_t id, next_id = 0;
    uint8_t *room;
    bool is_right = true;
    while (rooms < 100 && (room = sw_connected_sender_room(sender, &id))) {
        is_right &= !rooms || id == next_id;
        next_id = (uint16_t)(id + 1);
        memcpy(room, message, SW_CONNECTED_SENDER_ROOM_BYTES);
        is_right &= sw_connected_sender_send(sender, room, 32 * DATAGRAM, DATAGRAM) == 0;
        rooms++;
    }
    sw_connected_sender_release(sender); /* locked while it was claimed */
    assert_true(is_right);
    assert_in_range(rooms, 16, 64); /* now all is on its way */

    path.heard_ns = sw_clock_ns();
    sender = sw_connected_sender_claim(&port, &path);
    assert_non_null(sender);
    room = sw_connected_sender_room(sender, &id);
    is_right = room && id == next_id &&
               sw_connected_sender_send(sender, room, DATAGRAM, DATAGRAM) == 0; /* short: copied */
    sw_connected_sender_release(sender);
    assert_true(is_right);
}

static void connected_sender__what_it_cannot_send_closes_it(void **state)
{
    (void)state;
    struct sw_roce_path path = path_to(lo_v4);
    uint32_t sent;
    sw_connected_sender_release(open_one(&path, &sent));
    set_mtu(1000);
    send_message(&path, sent * PACKETS);
    assert_int_equal(sw_port_counter(&port, SW_PORT_TX_DROPPED), PACKETS);
    assert_null(sw_connected_sender_claim(&port, &path));
    set_mtu(65536);
    seen.next = sent * PACKETS;
    converse(&path, sent, sent + 5); /* by the port's own socket */
    assert_false(seen.is_damaged);
    assert_false(seen.is_out_of_order);
}

static void connected_sender__an_idle_one_is_closed(void **state)
{
    (void)state;
    struct sw_roce_path path = path_to(lo_v4);
    const int before = descriptors();
    uint32_t sent;
    sw_connected_sender_release(open_one(&path, &sent));
    assert_int_equal(descriptors(), before + 3);
    sw_connected_sender_tidy(sw_clock_ns() + SW_NS_PER_S);
    assert_int_equal(descriptors(), before + 3);
    sw_connected_sender_tidy(sw_clock_ns() + 60 * SW_NS_PER_S);
    assert_int_equal(descriptors(), before);
    assert_null(sw_connected_sender_claim(&port, &path));
    check_all_arrived(converse(&path, sent, sent + 160)); /* and opened again */
    assert_int_equal(descriptors(), before + 3);
}

int main(void)
{
    if (namespace_enter(CLONE_NEWNET)) {
        print_message("SKIP: no network namespace of our own\n");
        return 77;
    }
    if (!sw_connected_sender_is_possible()) {
        print_message("SKIP: this kernel is older than 6.5, or SIDEWIRE_SPLICE=never\n");
        return 77;
    }
    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = (uint8_t)i;
#define WITH_PORT(function) cmocka_unit_test_setup_teardown(function, open_port, close_port)
    const struct CMUnitTest tests[] = {
        WITH_PORT(connected_sender__keeps_bytes_and_order),
        WITH_PORT(sw_batch_hurry__until_the_flush),
        WITH_PORT(connected_sender__is_for_streams_that_are_answered),
        WITH_PORT(connected_sender__another_path_has_none),
        WITH_PORT(connected_sender__packets_have_the_identification_that_their_icrc_says),
        WITH_PORT(connected_sender__short_messages_have_it_without_a_ring),
        WITH_PORT(connected_sender__many_short_messages_have_a_connected_socket),
        WITH_PORT(connected_sender__short_and_long_messages_share_it),
        WITH_PORT(connected_sender__a_peer_that_is_not_there_costs_no_more),
        WITH_PORT(connected_sender__a_room_is_free_once_something_sent_later_has_arrived),
        WITH_PORT(connected_sender__what_it_cannot_send_closes_it),
        WITH_PORT(connected_sender__an_idle_one_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
