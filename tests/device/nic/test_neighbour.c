/* SPDX-License-Identifier: BSD-2-Clause */
/* What has the kernel ask for a neighbour comes to that neighbour: to a host whose rdma_rxe may not
 * survive a datagram that is shorter than a BTH. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../preload/namespace.h"
#include "device/nic/neighbour.h"
#include "wire/packet.h"

static const union ibv_gid lo[2] = {{.raw = {[15] = 1}},
                                    {.raw = {[10] = 0xff, 0xff, 127, 0, 0, 1}}};

static int listen_at_all(void)
{
    const struct sockaddr_in6 own = {.sin6_family = AF_INET6, .sin6_port = htons(SW_ROCE_PORT)};
    const int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&own, sizeof(own)), 0);
    return fd;
}

static void ask__is_a_whole_header_that_receivers_drop(void **state)
{
    (void)state;
    const int fd = listen_at_all();
    for (int i = 0; i < 2; i++) {
        uint8_t datagram[4096];
        struct sw_packet packet;
        assert_true(sw_neighbour_ask(1, &lo[i], &lo[i]));
        const ssize_t len = recv(fd, datagram, sizeof(datagram), MSG_DONTWAIT);
        assert_int_equal(len, SW_BTH_BYTES + SW_ICRC_BYTES);
        assert_int_equal(sw_packet_decode(datagram, (size_t)len, &packet),
                         SW_PACKET_FAULT_TRUNCATED);
        const struct sw_opcode *opcode = sw_opcode_of(datagram[0]);
        assert_non_null(opcode);
        assert_true(opcode->header_len > len);
    }
    close(fd);
}

int main(void)
{
    if (!namespace_own_network()) {
        print_message("SKIP: no network namespace of our own\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ask__is_a_whole_header_that_receivers_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
