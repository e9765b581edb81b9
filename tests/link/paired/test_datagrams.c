/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams over TCP have bounds: what waits for a peer, and for how many, is a bounded number of
 * bytes; the rest is dropped and counted, and what was taken arrives. The test plays the peer, in a
 * network namespace of its own.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <malloc.h>
#include <net/if.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../link_rig.h"
#include "../roce/port/port_rig.h"
#include "base/clock.h"
#include "base/minmax.h"
#include "device/queue/counters.h"
#include "link/paired/paired.h"
#include "link/paired/waiting.h"
#include "link/roce/port/path.h"
#include "wire/bytes.h"
#include "wire/iwarp/carried.h"
#include "wire/iwarp/pairing.h"

#define PEER "127.0.0.2"
#define PORT 4791
#define SLOT 77u
#define WAYS 256u
#define PACKET_BYTES 1000u
#define LONG_BYTES 4000u
#define SLACK_BYTES (2u << 20) /* of the allocator, and of what else the process does */
#define PATIENCE_MS 20000

static struct rig rig;
static int listener;

/* ---- what is sent ---- */

static struct sw_roce_path path_to_peer(void)
{
    static const uint8_t own[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
    static const uint8_t peer[16] = {[10] = 0xff, 0xff, 127, 0, 0, 2};
    struct sw_roce_path path = {0};
    assert_int_equal(sw_roce_path_set(&path, own, peer, 0), 0);
    return path;
}

/* Packet n, to a queue pair of the peer's process of that slot. */
static void send_packet(uint32_t slot, uint32_t n, uint32_t len_bytes)
{
    const struct sw_roce_path path = path_to_peer();
    uint8_t packet[LONG_BYTES] = {0x64};
    sw_be24_store(packet + 5, sw_qpn_make(slot, 1));
    sw_be32_store(packet + 20, n);
    sw_port_carrier()->send(&path, 50000, packet, len_bytes);
}

static uint64_t dropped(enum sw_counter counter)
{
    const struct sw_roce_path path = path_to_peer();
    return sw_counter_read(sw_roce_device_at(&path.source), counter);
}

static uint64_t all_dropped(void)
{
    return dropped(SW_TX_DROP_STALLED) + dropped(SW_TX_DROP_UNREACHABLE);
}

static uint32_t frames_of(uint32_t waiting_bytes, uint32_t packet_bytes)
{
    return waiting_bytes / sw_fpdu_len(SW_DDP_UNTAGGED_BYTES + SW_CARRIED_BYTES + packet_bytes);
}

static size_t heap_bytes(void)
{
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static uint32_t open_files(void)
{
    uint32_t count = 0;
    DIR *files = opendir("/proc/self/fd");
    assert_non_null(files);
    while (readdir(files))
        count++;
    closedir(files);
    return count;
}

/* ---- the peer ---- */

static int listen_as_peer(void)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, room = 16384;
    assert_int_equal(inet_pton(AF_INET, PEER, &own.sin_addr), 1);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof(own)), 0);
    assert_int_equal(listen(fd, 1024), 0);
    return fd;
}

/* Whether so many bytes came before the end. */
static bool get_bytes(int fd, uint8_t *to, size_t len)
{
    for (size_t at = 0; at < len;) {
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&readable, 1, PATIENCE_MS), 1);
        const ssize_t got = recv(fd, to + at, len - at, 0);
        if (got <= 0)
            return false;
        at += (size_t)got;
    }
    return true;
}

/* Whether the caller asks and hears the reply: it may have given up. */
static bool answer_call(int fd)
{
    const struct sw_iwarp_start_config to_listen = {.revision = 2};
    struct sw_iwarp_start start;
    struct sw_pairing request;
    uint8_t byte, private_data[SW_PAIRING_BYTES];
    sw_iwarp_start_listen(&start, &to_listen, sw_clock_ns());
    while (start.state == SW_IWARP_AWAITED && get_bytes(fd, &byte, 1))
        sw_iwarp_start_take(&start, &byte, 1);
    if (start.state != SW_IWARP_REQUESTED)
        return false;
    assert_true(sw_pairing_decode(start.peer.private_data, start.peer.private_len, &request));
    assert_int_equal(request.kind, SW_PAIRING_DATAGRAMS);
    const struct sw_pairing reply = {.kind = SW_PAIRING_REPLY, .nonce = request.nonce};
    sw_pairing_encode(&reply, private_data);
    const struct sw_iwarp_start_config config = sw_paired_config(private_data);
    sw_iwarp_start_accept(&start, &config, sw_clock_ns());
    return send(fd, start.out, start.out_len, MSG_NOSIGNAL) == start.out_len;
}

/* The number of the packet of the next frame; its MSN has to be this one. False: the end. */
static bool next_packet(int fd, uint32_t msn, uint32_t *n)
{
    uint8_t frame[SW_CARRIED_MAX];
    struct sw_carried carried;
    if (!get_bytes(fd, frame, SW_FPDU_LENGTH_BYTES))
        return false;
    const uint32_t ulpdu_len = sw_be16_load(frame);
    assert_true(sw_fpdu_len(ulpdu_len) <= sizeof(frame));
    if (!get_bytes(fd, frame + SW_FPDU_LENGTH_BYTES, sw_fpdu_len(ulpdu_len) - SW_FPDU_LENGTH_BYTES))
        return false;
    assert_true(sw_carried_decode(frame + SW_FPDU_LENGTH_BYTES, ulpdu_len, &carried));
    assert_int_equal(carried.msn, msn);
    *n = sw_be32_load(carried.packet + 20);
    return true;
}

/* A call is answered, of which packet 0 comes, then packet 1. */
static int accept_and_get_first(void)
{
    uint32_t n;
    for (;;) {
        struct pollfd readable = {.fd = listener, .events = POLLIN};
        assert_int_equal(poll(&readable, 1, PATIENCE_MS), 1);
        const int fd = accept(listener, NULL, NULL);
        assert_true(fd >= 0);
        if (answer_call(fd) && next_packet(fd, 1, &n)) {
            assert_int_equal(n, 0);
            return fd;
        }
        close(fd);
    }
}

/* ---- */

static void carrier_send__keeps_so_much_for_a_peer_that_does_not_answer(void **state)
{
    enum { PACKETS = 2000 };
    (void)state;
    const uint32_t kept = frames_of(SW_WAITING_BYTES_MAX, PACKET_BYTES);
    const uint64_t before = dropped(SW_TX_DROP_STALLED), lost = dropped(SW_TX_DROP_UNREACHABLE);
    const size_t heap = heap_bytes();
    for (uint32_t n = 0; n < PACKETS; n++)
        send_packet(SLOT, n, PACKET_BYTES);
    assert_int_equal(dropped(SW_TX_DROP_STALLED) - before, PACKETS - kept);
    assert_true(heap_bytes() - heap < SW_WAITING_BYTES_MAX + SLACK_BYTES);
    const int fd = accept_and_get_first();
    for (uint32_t i = 1, n; i < kept; i++) {
        assert_true(next_packet(fd, i + 1, &n));
        assert_int_equal(n, i);
    }
    assert_int_equal(dropped(SW_TX_DROP_UNREACHABLE), lost);
    close(fd);
}

static void carrier_send__counts_what_a_peer_that_does_not_read_misses(void **state)
{
    enum { PACKETS_MAX = 100000, DROPS = 100 };
    (void)state;
    const uint64_t before = all_dropped();
    uint32_t sent = 1, came = 1;
    send_packet(SLOT + 1, 0, PACKET_BYTES);
    const int fd = accept_and_get_first();
    const size_t heap = heap_bytes();
    while (all_dropped() < before + DROPS && sent < PACKETS_MAX)
        send_packet(SLOT + 1, sent++, PACKET_BYTES);
    assert_int_equal(all_dropped(), before + DROPS);
    assert_true(heap_bytes() - heap < SW_WAITING_BYTES_MAX + SLACK_BYTES);
    for (uint32_t n, last = 0; came < sent - DROPS; came++, last = n) {
        assert_true(next_packet(fd, came + 1, &n));
        assert_true(n > last && n < sent);
    }
    send_packet(SLOT + 1, sent, PACKET_BYTES); /* there is room again */
    uint32_t n;
    assert_true(next_packet(fd, came + 1, &n));
    assert_int_equal(n, sent);
    assert_int_equal(all_dropped(), before + DROPS);
    close(fd);
}

/* None of which answers. The one that was used least lately makes room. */
static void carrier_send__keeps_so_many_connections(void **state)
{
    enum { PROCESSES = 300 };
    (void)state;
    const uint32_t most_bytes = WAYS * SW_WAITING_OWN_BYTES + SW_WAITING_SHARED_BYTES;
    const uint32_t each = 3 * frames_of(SW_WAITING_OWN_BYTES, LONG_BYTES);
    const uint64_t kept = frames_of(most_bytes, LONG_BYTES);
    const uint64_t before = all_dropped();
    const size_t heap = heap_bytes();
    const uint32_t files = open_files();
    for (uint32_t i = 0; i < PROCESSES; i++)
        for (uint32_t n = 0; n < each; n++)
            send_packet(SLOT + 2 + i, n, LONG_BYTES);
    assert_true(heap_bytes() - heap < most_bytes + WAYS * 4096 + SLACK_BYTES);
    assert_true(open_files() <= files + WAYS);
    const uint64_t of_all = PROCESSES * each, now = all_dropped() - before;
    assert_true(now >= of_all - kept && now <= of_all);
}

static int enter_and_open(void **state)
{
    (void)state;
    setenv("SIDEWIRE_LINK", "tcp", 1);
    setenv("SIDEWIRE_DIRECT", "off", 1);
    lo_set(IFF_UP, 65536);
    listener = listen_as_peer();
    rig_open(&rig);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    close(listener);
    rig_close(&rig);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(carrier_send__keeps_so_much_for_a_peer_that_does_not_answer),
        cmocka_unit_test(carrier_send__counts_what_a_peer_that_does_not_read_misses),
        cmocka_unit_test(carrier_send__keeps_so_many_connections),
    };
    const int rc = enter_port_namespace();
    return rc ? rc : cmocka_run_group_tests(tests, enter_and_open, close_all);
}
