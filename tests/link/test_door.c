/* SPDX-License-Identifier: BSD-2-Clause */
/* A probe is a packet of RoCE; where nobody has the ports, the kernel says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "../preload/namespace.h"
#include "link/door.h"
#include "link/roce/port/path.h"
#include "wire/packet.h"

static const union ibv_gid lo[2] = {{.raw = {[15] = 1}},
                                    {.raw = {[10] = 0xff, 0xff, 127, 0, 0, 1}}};
static uint8_t mad[SW_MAD_BYTES];

static int listen_at(const union ibv_gid *gid)
{
    struct in6_addr address;
    struct sockaddr_in6 own;
    memcpy(&address, gid->raw, sizeof(address));
    const socklen_t len = sw_roce_sockaddr(&address, SW_ROCE_PORT, 0, &own);
    const int fd = socket(own.sin6_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&own, len), 0);
    return fd;
}

static void expect_packet(int fd)
{
    uint8_t datagram[4096];
    struct sockaddr_in6 from;
    struct in6_addr address;
    struct sw_packet packet;
    struct sw_icrc_flow flow;
    struct sw_icrc_prefix prefix = {0};
    struct sw_icrc_rewind rewind = {0};
    struct sw_ip_id ip_id = {.id = 0, .dont_fragment = true};
    uint16_t port;
    socklen_t from_len = sizeof(from);
    const ssize_t len =
        recvfrom(fd, datagram, sizeof(datagram), 0, (struct sockaddr *)&from, &from_len);
    assert_true(len > 0);
    sw_roce_address(&from, &address, &port);
    sw_roce_icrc(&address, &address, port, SW_ROCE_PORT, &flow);
    assert_int_equal(sw_packet_decode(datagram, (size_t)len, &packet), SW_PACKET_FAULT_NONE);
    assert_true(sw_icrc_check(&flow, &prefix, datagram, (size_t)len, &rewind, &ip_id));
    assert_int_equal(ip_id.id, 0);
    assert_int_equal(packet.bth.dest_qpn, SW_MAD_QPN);
    assert_int_equal(packet.payload_len, sizeof(mad));
    assert_memory_equal(packet.payload, mad, sizeof(mad));
}

static void probe__is_a_packet_of_roce(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct sw_door door = {.source = lo[i], .dest = lo[i], .fd = -1};
        const int fd = listen_at(&lo[i]);
        assert_true(sw_door_probe(&door, mad));
        expect_packet(fd);
        assert_false(sw_door_look(&door));
        assert_true(sw_door_probe(&door, mad));
        expect_packet(fd);
        sw_door_close(&door);
        close(fd);
    }
}

/* On the loopback all answers are there when a call returns. */
static void look__nobody_has_the_ports(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct sw_door door = {.source = lo[i], .dest = lo[i], .fd = -1};
        bool is_closed = false;
        assert_false(sw_door_look(&door));
        assert_true(sw_door_probe(&door, mad));
        for (int looks = 0; !is_closed && looks < 3; looks++)
            is_closed = sw_door_look(&door);
        assert_true(is_closed);
        sw_door_close(&door);
        assert_int_equal(door.fd, -1);
    }
}

int main(void)
{
    if (!namespace_own_network()) {
        print_message("SKIP: no network namespace of our own\n");
        return 77;
    }
    for (size_t i = 0; i < sizeof(mad); i++)
        mad[i] = (uint8_t)(3 * i);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probe__is_a_packet_of_roce),
        cmocka_unit_test(look__nobody_has_the_ports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
