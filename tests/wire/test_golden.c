/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_golden FOLDER: every RoCEv2 frame of the captures in tests/golden decodes, encodes to the
 * same bytes, and has the ICRC that we compute; and a receiver that does not see the identification
 * of the IPv4 header finds it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "capture.h"
#include "wire/icrc.h"
#include "wire/packet.h"

static const char *folder;

struct golden {
    const char *name;
    int packets; /* in the capture, counted by another program */
};
static const struct golden files[] = {
    {"cm-reject", 2},    {"mcast", 3},         {"nvme-rdma", 362},
    {"rc-cmp-swap", 84}, {"rc-fetch-add", 84}, {"rc-atomic-write-6.12", 7},
    {"rc-pingpong", 30}, {"rc-read", 96},      {"rc-rping", 41},
    {"rc-send", 74},     {"rc-rping-v6", 29},  {"rc-write", 99},
    {"rnr-nak", 150},    {"rc-write-odd", 89}, {"srq-pingpong", 80},
    {"uc-send", 15},     {"uc-write", 15},     {"ud-pingpong", 10},
    {"ud-send", 58},     {"udaddy-sidr", 8},
};

static void check_icrc(const struct sw_flow *flow, const uint8_t *datagram, size_t len)
{
    struct sw_icrc_flow prepared;
    struct sw_icrc_rewind rewind = {0};
    struct sw_ip_id guess = {flow->ip_id, flow->dont_fragment}, found = guess;
    sw_icrc_flow_init(&prepared, flow);
    assert_true(
        sw_icrc_check(&prepared, &(struct sw_icrc_prefix){0}, datagram, len, &rewind, &found));
    assert_int_equal(rewind.power, 0); /* nothing had to be found */
    assert_int_equal(found.id, flow->ip_id);

    found = (struct sw_ip_id){0, true};
    struct sw_flow unseen = *flow; /* what a UDP socket knows */
    unseen.ip_id = 0;
    unseen.tos = unseen.ttl = 0;
    sw_icrc_flow_init(&prepared, &unseen);
    assert_true(
        sw_icrc_check(&prepared, &(struct sw_icrc_prefix){0}, datagram, len, &rewind, &found));
    assert_int_equal(found.id, flow->ip_id);
    assert_int_equal(found.dont_fragment, flow->is_ipv6 || flow->dont_fragment);
}

static void check_datagram(const struct sw_flow *flow, const uint8_t *datagram, size_t len)
{
    struct sw_packet packet;
    assert_int_equal(sw_packet_decode(datagram, len, &packet), SW_PACKET_FAULT_NONE);
    assert_int_equal(sw_packet_len(packet.opcode, packet.payload_len), len);

    static uint8_t again[CAPTURE_FRAME_MAX];
    struct sw_icrc_flow prepared;
    sw_icrc_flow_init(&prepared, flow);
    assert_int_equal(datagram_build(&prepared, flow->ip_id, &packet, again), len);
    assert_memory_equal(again, datagram, len);
    check_icrc(flow, datagram, len);
}

static void check_file(void **state)
{
    const struct golden *golden = *state;
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s.pcap", folder, golden->name);
    FILE *capture = capture_open(path);
    static uint8_t frame[CAPTURE_FRAME_MAX];
    int packets = 0;
    for (size_t len; (len = capture_read(capture, frame)) > 0;) {
        struct sw_flow flow;
        const uint8_t *datagram;
        size_t datagram_len;
        if (!frame_parse(frame, len, &flow, &datagram, &datagram_len))
            continue;
        check_datagram(&flow, datagram, datagram_len);
        packets++;
    }
    fclose(capture);
    assert_int_equal(packets, golden->packets);
}

int main(int argc, char **argv)
{
    enum { COUNT = sizeof(files) / sizeof(files[0]) };
    struct CMUnitTest tests[COUNT];
    if (argc != 2)
        return EXIT_FAILURE;
    folder = argv[1];
    for (int i = 0; i < COUNT; i++)
        tests[i] = (struct CMUnitTest){.name = files[i].name,
                                       .test_func = check_file,
                                       .initial_state = (void *)(uintptr_t)&files[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
