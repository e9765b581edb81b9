/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections that bring datagrams: one that makes room for another loses nothing by it. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/rules/pub.h"
#include "link/roce/port/stream.h"
#include "port_rig.h"
#include "wire/bytes.h"
#include "wire/iwarp/carried.h"

enum { DESCRIPTORS = 256, OF_ADDRESS = DESCRIPTORS / 8 / 2, PACKETS = 40, PACKET_BYTES = 4000 };

/* With an ICRC that is none: what comes is counted, and that is enough here. */
static void bring_packet(int peer, uint32_t n)
{
    uint8_t frame[SW_CARRIED_MAX] = {0}, *packet = frame + SW_CARRIED_HEAD_BYTES;
    const struct sw_carried carried = {
        .msn = n, .source_port = 50000, .len_bytes = PACKET_BYTES, .packet = packet};
    packet[0] = 0x64; /* of UD */
    sw_be24_store(packet + 5, sw_qpn_make(5, 7));
    sw_carried_encode(&carried, frame);
    uint32_t len = SW_CARRIED_HEAD_BYTES + PACKET_BYTES;
    len += sw_fpdu_finish(0, sw_carried_ulpdu_len(&carried), false, frame + len);
    assert_int_equal(send(peer, frame, len, MSG_NOSIGNAL), len);
}

static int add_connection(struct sw_port *port)
{
    int socks[2];
    struct sw_stream_origin origin = {.has_crc = false};
    memcpy(&origin.source, lo_v4, sizeof(origin.source));
    origin.dest = origin.source;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks), 0);
    assert_int_equal(sw_streams_add(port, socks[1], &origin, sw_clock_ns()), 0);
    return socks[0];
}

static void add__what_the_one_that_goes_has_brought_is_taken(void **state)
{
    struct pair *pair = *state;
    struct rlimit limit, before;
    int peers[OF_ADDRESS + 1];
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = DESCRIPTORS;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    peers[0] = add_connection(&pair->one);
    for (uint32_t n = 1; n <= PACKETS; n++)
        bring_packet(peers[0], n);
    for (int i = 1; i <= OF_ADDRESS; i++)
        peers[i] = add_connection(&pair->one);
    assert_int_equal(send(peers[0], "", 1, MSG_NOSIGNAL), -1); /* it has gone */
    assert_int_equal(sw_port_counter(&pair->one, SW_PORT_RX_BAD_ICRC), PACKETS);
    for (int i = 0; i <= OF_ADDRESS; i++)
        close(peers[i]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_PAIR(add__what_the_one_that_goes_has_brought_is_taken),
    };
    const int rc = enter_port_namespace();
    return rc ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
