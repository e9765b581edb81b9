/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_cm_golden FOLDER: every CM message of the captures in tests/golden, which kernels sent each
 * other, decodes and encodes to the same bytes; so does the RDMA IP CM header in requests.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "capture.h"
#include "wire/cm_mad.h"

static const char *folder;

enum { ATTRIBUTES = SW_CM_SIDR_REP - SW_CM_REQ + 1 };
struct golden {
    const char *name;
    int counts[ATTRIBUTES]; /* REQ, MRA, ...: counted by another program */
};
static const struct golden files[] = {
    {"cm-reject", {1, 0, 1, 0, 0, 0, 0, 0, 0}},
    {"nvme-rdma", {3, 0, 0, 3, 3, 3, 3, 0, 0}},
    {"rc-atomic-write-6.12", {1, 0, 0, 1, 1, 1, 1, 0, 0}},
    {"rc-cmp-swap", {2, 0, 0, 2, 2, 2, 2, 0, 0}},
    {"rc-fetch-add", {2, 0, 0, 2, 2, 2, 2, 0, 0}},
    {"rc-read", {2, 0, 0, 2, 2, 3, 3, 0, 0}},
    {"rc-rping-v6", {1, 0, 0, 1, 1, 1, 1, 0, 0}},
    {"rc-rping", {1, 0, 0, 1, 1, 1, 1, 0, 0}},
    {"rc-send", {2, 0, 0, 2, 2, 2, 2, 0, 0}},
    {"rc-write-odd", {2, 0, 0, 2, 2, 2, 2, 0, 0}},
    {"rc-write", {2, 0, 0, 2, 2, 2, 2, 0, 0}},
    {"rnr-nak", {2, 0, 0, 2, 2, 2, 2, 0, 0}},
    {"ud-send", {1, 0, 0, 1, 1, 2, 2, 1, 1}},
    {"udaddy-sidr", {0, 0, 0, 0, 0, 0, 0, 1, 1}},
};

static void check_ip_header(const uint8_t *private_data, const struct sw_flow *flow)
{
    uint8_t again[SW_CM_IP_HEADER_BYTES];
    struct sw_cm_ip_header header;
    assert_true(sw_cm_ip_header_decode(private_data, &header));
    sw_cm_ip_header_encode(&header, again);
    assert_memory_equal(again, private_data, sizeof(again));
    assert_int_equal(header.ip_version, flow->is_ipv6 ? 6 : 4);
    assert_memory_equal(header.src_addr + (flow->is_ipv6 ? 0 : 12), flow->src,
                        flow->is_ipv6 ? 16 : 4);
    assert_memory_equal(header.dst_addr + (flow->is_ipv6 ? 0 : 12), flow->dst,
                        flow->is_ipv6 ? 16 : 4);
}

static void check_mad(const struct sw_flow *flow, const struct sw_packet *packet, int *counts)
{
    struct sw_cm_message message;
    uint8_t again[SW_MAD_BYTES];
    assert_int_equal(sw_cm_mad_decode(packet->payload, packet->payload_len, &message),
                     SW_CM_MAD_FAULT_NONE);
    sw_cm_mad_encode(&message, again);
    assert_memory_equal(again, packet->payload, SW_MAD_BYTES);
    assert_true(message.attribute - SW_CM_REQ < ATTRIBUTES);
    counts[message.attribute - SW_CM_REQ]++;
    if (message.attribute == SW_CM_REQ) {
        check_ip_header(message.req.private_data, flow);
        assert_int_equal(message.req.primary.local_lid, 0xffff);
        assert_int_equal(message.req.pkey, SW_PKEY_DEFAULT);
    } else if (message.attribute == SW_CM_SIDR_REQ) {
        check_ip_header(message.sidr_req.private_data, flow);
    } else if (message.attribute == SW_CM_REJ) {
        assert_int_equal(message.rej.reason, SW_CM_REASON_SERVICE_ID);
    }
}

static void check_file(void **state)
{
    const struct golden *golden = *state;
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s.pcap", folder, golden->name);
    FILE *capture = capture_open(path);
    static uint8_t frame[CAPTURE_FRAME_MAX];
    int counts[ATTRIBUTES] = {0};
    for (size_t len; (len = capture_read(capture, frame)) > 0;) {
        struct sw_flow flow;
        struct sw_packet packet;
        const uint8_t *datagram;
        size_t datagram_len;
        if (frame_parse(frame, len, &flow, &datagram, &datagram_len) &&
            sw_packet_decode(datagram, datagram_len, &packet) == SW_PACKET_FAULT_NONE &&
            packet.opcode->service == SW_SERVICE_UD && packet.bth.dest_qpn == SW_MAD_QPN) {
            assert_int_equal(packet.deth.qkey, SW_MAD_QKEY);
            check_mad(&flow, &packet, counts);
        }
    }
    fclose(capture);
    assert_memory_equal(counts, golden->counts, sizeof(counts));
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
