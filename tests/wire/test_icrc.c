/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/icrc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/bytes.h"
#include "wire/packet.h"

enum { PAYLOAD_MAX = 4096 };

static uint64_t random_state;
static uint32_t next_random(void) /* xorshift64, Marsaglia 2003 */
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 16);
}

static int begin(void **state)
{
    (void)state;
    random_state = 88172645463325252;
    return 0;
}

/* The specification's words, a bit at a time. */
static uint32_t crc_by_bits(uint32_t crc, const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
    }
    return crc;
}

static uint32_t icrc_by_bits(const struct sw_flow *flow, const uint8_t *datagram, size_t len)
{
    uint8_t head[8 + 40 + 8 + 12];
    uint8_t *ip = head + 8, *udp = ip + (flow->is_ipv6 ? 40 : 20), *bth = udp + 8;
    memset(head, 0xff, sizeof(head)); /* what routers change stays as it is here */
    if (flow->is_ipv6) {
        ip[0] = 0x6f;
        sw_be16_store(ip + 4, (uint16_t)(len + 8));
        ip[6] = 17;
        memcpy(ip + 8, flow->src, 16);
        memcpy(ip + 24, flow->dst, 16);
    } else {
        ip[0] = 0x45;
        sw_be16_store(ip + 2, (uint16_t)(len + 28));
        sw_be16_store(ip + 4, flow->ip_id);
        sw_be16_store(ip + 6, flow->dont_fragment ? 0x4000 : 0);
        ip[9] = 17;
        memcpy(ip + 12, flow->src, 4);
        memcpy(ip + 16, flow->dst, 4);
    }
    sw_be16_store(udp, flow->src_port);
    sw_be16_store(udp + 2, flow->dst_port);
    sw_be16_store(udp + 4, (uint16_t)(len + 8));
    memcpy(bth, datagram, 12);
    bth[4] = 0xff;
    uint32_t crc = crc_by_bits(~0u, head, (size_t)(bth + 12 - head));
    return ~crc_by_bits(crc, datagram + 12, len - 12 - 4);
}

static struct sw_flow random_flow(bool is_ipv6)
{
    struct sw_flow flow = {.is_ipv6 = is_ipv6,
                           .dont_fragment = next_random() & 1,
                           .ip_id = (uint16_t)next_random(),
                           .src_port = (uint16_t)next_random(),
                           .dst_port = SW_ROCE_PORT,
                           .tos = (uint8_t)next_random(),
                           .ttl = (uint8_t)next_random()};
    for (int i = 0; i < 16; i++) {
        flow.src[i] = (uint8_t)next_random();
        flow.dst[i] = (uint8_t)next_random();
    }
    return flow;
}

/* A datagram with random contents, made in up to three pieces of payload. Returns its length. */
static size_t make(const struct sw_flow *flow, uint8_t opcode, uint32_t payload_len, uint8_t *to)
{
    struct sw_packet packet = {.bth = {.opcode = opcode,
                                       .fecn = next_random() & 1,
                                       .becn = next_random() & 1,
                                       .dest_qpn = next_random() & 0xffffff,
                                       .psn = next_random() & 0xffffff},
                               .payload_len = payload_len};
    struct sw_icrc_flow prepared;
    sw_icrc_flow_init(&prepared, flow);
    size_t len = sw_packet_len(sw_opcode_of(opcode), payload_len);
    size_t at = sw_packet_encode_headers(&packet, to, SW_HEADERS_MAX);
    uint32_t crc = sw_icrc_begin(&prepared, flow->ip_id, to, at, len);
    uint32_t rest = payload_len;
    for (int piece = 0; piece < 3; piece++) {
        uint32_t part = piece == 2 ? rest : next_random() % (rest + 1);
        for (uint32_t i = 0; i < part; i++)
            to[at + i] = (uint8_t)next_random();
        crc = sw_icrc_add(crc, to + at, part);
        at += part;
        rest -= part;
    }
    at += sw_icrc_finish(crc, payload_len, to + at);
    assert_int_equal(at, len);
    return len;
}

static uint32_t icrc_of(const uint8_t *datagram, size_t len)
{
    return sw_le32_load(datagram + len - SW_ICRC_BYTES);
}

static void sw_icrc__equals_the_specification_by_bits(void **state)
{
    (void)state;
    static uint8_t datagram[PAYLOAD_MAX + 64];
    for (int round = 0; round < 300; round++) {
        struct sw_flow flow = random_flow(round & 1);
        uint32_t payload_len = next_random() % (round % 3 ? 64 : PAYLOAD_MAX + 1);
        size_t len = make(&flow, round & 2 ? 0x0b : 0x64, payload_len, datagram);
        assert_int_equal(icrc_of(datagram, len), icrc_by_bits(&flow, datagram, len));
    }
}

static void sw_icrc__by_tables(void **state)
{
    sw_icrc_use_tables(true);
    sw_icrc__equals_the_specification_by_bits(state);
    sw_icrc_use_tables(false);
}

/* The GSO case: one flow, an identification for each segment. */
static void sw_icrc_begin__takes_the_identification(void **state)
{
    (void)state;
    static uint8_t datagram[2048];
    struct sw_flow flow = random_flow(false);
    flow.ip_id = 0;
    size_t len = make(&flow, 0x07, 1024, datagram);
    struct sw_icrc_flow prepared;
    sw_icrc_flow_init(&prepared, &flow);
    for (uint16_t id = 0; id < 20; id++) {
        uint32_t crc = sw_icrc_begin(&prepared, id, datagram, 12, len);
        crc = sw_icrc_add(crc, datagram + 12, 1024);
        flow.ip_id = id;
        assert_int_equal(crc, icrc_by_bits(&flow, datagram, len));
    }
}

/* The same in one piece, as packets of one flow follow each other: most have the prefix of the one
 * before, but not all. */
static void sw_icrc_seal__equals_the_specification_by_bits(void **state)
{
    (void)state;
    static uint8_t datagram[2048];
    for (int run = 0; run < 40; run++) {
        struct sw_flow flow = random_flow(run & 1);
        struct sw_icrc_flow prepared;
        struct sw_icrc_prefix prefix = {0};
        sw_icrc_flow_init(&prepared, &flow);
        size_t len = make(&flow, 0x0a, 1000, datagram);
        for (int i = 0; i < 40; i++) {
            flow.ip_id = (uint16_t)(i % 4 ? i : (int)next_random());
            if (i % 8 == 7)
                len = make(&flow, i % 16 == 7 ? 0x07 : 0x0a, next_random() % 1024, datagram);
            datagram[8 + next_random() % 4] ^= (uint8_t)next_random();
            datagram[4] ^= (uint8_t)(i % 5 == 0);
            sw_icrc_seal(&prepared, &prefix, flow.ip_id, datagram, len);
            assert_int_equal(icrc_of(datagram, len), icrc_by_bits(&flow, datagram, len));
        }
    }
}

static void sw_icrc_check__finds_every_identification(void **state)
{
    (void)state;
    struct sw_icrc_prefix prefix = {0};
    static uint8_t datagram[64];
    struct sw_flow sent = random_flow(false);
    struct sw_icrc_rewind rewind = {0};
    struct sw_icrc_flow prepared;
    sw_icrc_flow_init(&prepared, &sent);
    for (uint32_t id = 0; id < 0x20000; id++) {
        sent.ip_id = (uint16_t)id;
        sent.dont_fragment = id >> 16;
        size_t len = make(&sent, 0x11, 0, datagram);
        struct sw_ip_id found = {0, true};
        assert_true(sw_icrc_check(&prepared, &prefix, datagram, len, &rewind, &found));
        assert_int_equal(found.id, sent.ip_id);
        assert_int_equal(found.dont_fragment, sent.dont_fragment);
    }
}

/* Lengths alternate, so what is kept for the last one does not serve. */
static void sw_icrc_check__at_every_length(void **state)
{
    (void)state;
    static uint8_t datagram[SW_DATAGRAM_MAX];
    struct sw_icrc_rewind rewind = {0};
    for (uint32_t round = 0; round < 200; round++) {
        struct sw_flow flow = random_flow(false);
        uint32_t payload_len = round < 40 ? round : next_random() % (SW_DATAGRAM_MAX - 48);
        size_t len = make(&flow, 0x04, payload_len, datagram);
        struct sw_icrc_flow prepared;
        struct sw_ip_id found = {(uint16_t)next_random(), true};
        sw_icrc_flow_init(&prepared, &flow);
        assert_true(
            sw_icrc_check(&prepared, &(struct sw_icrc_prefix){0}, datagram, len, &rewind, &found));
        assert_int_equal(found.id, flow.ip_id);
    }
}

static void flip_each_bit(const struct sw_flow *flow, uint16_t guessed_id)
{
    static uint8_t datagram[512];
    size_t len = make(flow, 0x0a, 301, datagram);
    struct sw_icrc_rewind rewind = {0};
    struct sw_icrc_flow prepared;
    int passed = 0;
    sw_icrc_flow_init(&prepared, flow);
    for (size_t bit = 0; bit < len * 8; bit++) {
        bool may_change = bit / 8 == 4; /* byte 4 of the BTH */
        struct sw_ip_id found = {guessed_id, true};
        datagram[bit / 8] ^= (uint8_t)(1 << bit % 8);
        bool good =
            sw_icrc_check(&prepared, &(struct sw_icrc_prefix){0}, datagram, len, &rewind, &found);
        if (may_change)
            assert_true(good && (flow->is_ipv6 || found.id == flow->ip_id));
        if (good && !may_change) {
            /* A packet that passes does so since another identification makes it right. */
            struct sw_flow other = *flow;
            assert_false(flow->is_ipv6);
            assert_int_not_equal(found.id, flow->ip_id);
            other.ip_id = found.id;
            other.dont_fragment = found.dont_fragment;
            assert_int_equal(icrc_by_bits(&other, datagram, len), icrc_of(datagram, len));
            passed++;
        }
        datagram[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_in_range(passed, 0, 2); /* of 2,700: one in 2^15 */
}

static void sw_icrc_check__every_flipped_bit_is_seen(void **state)
{
    (void)state;
    struct sw_flow v4 = random_flow(false), v6 = random_flow(true);
    flip_each_bit(&v4, v4.ip_id);
    flip_each_bit(&v4, 0);
    flip_each_bit(&v6, 0);
}

/* Not knowing 17 bits costs that much of 32. */
static void sw_icrc_check__random_damage_passes_once_in_2_15(void **state)
{
    (void)state;
    enum { ROUNDS = 1 << 20 };
    static uint8_t datagram[64];
    struct sw_flow v4 = random_flow(false), v6 = random_flow(true);
    struct sw_icrc_flow by_v4, by_v6;
    struct sw_icrc_rewind rewind = {0};
    struct sw_ip_id found = {0, true};
    int passed = 0;
    sw_icrc_flow_init(&by_v4, &v4);
    sw_icrc_flow_init(&by_v6, &v6);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 16; i < 32; i += 4)
            sw_le32_store(datagram + i, next_random());
        passed += sw_icrc_check(&by_v4, &(struct sw_icrc_prefix){0}, datagram, 32, &rewind, &found);
        assert_false(
            sw_icrc_check(&by_v6, &(struct sw_icrc_prefix){0}, datagram, 32, &rewind, &found));
    }
    assert_in_range(passed, ROUNDS >> 16, ROUNDS >> 14);
}

static void sw_icrc_check__too_short_or_long(void **state)
{
    (void)state;
    static const uint8_t datagram[SW_DATAGRAM_MAX + 1];
    struct sw_flow flow = random_flow(false);
    struct sw_icrc_rewind rewind = {0};
    struct sw_icrc_flow prepared;
    struct sw_ip_id found = {0, true};
    sw_icrc_flow_init(&prepared, &flow);
    for (size_t len = 0; len < 16; len++)
        assert_false(
            sw_icrc_check(&prepared, &(struct sw_icrc_prefix){0}, datagram, len, &rewind, &found));
    assert_false(sw_icrc_check(&prepared, &(struct sw_icrc_prefix){0}, datagram, sizeof(datagram),
                               &rewind, &found));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(sw_icrc__equals_the_specification_by_bits, begin),
        cmocka_unit_test_setup(sw_icrc__by_tables, begin),
        cmocka_unit_test_setup(sw_icrc_begin__takes_the_identification, begin),
        cmocka_unit_test_setup(sw_icrc_seal__equals_the_specification_by_bits, begin),
        cmocka_unit_test_setup(sw_icrc_check__finds_every_identification, begin),
        cmocka_unit_test_setup(sw_icrc_check__at_every_length, begin),
        cmocka_unit_test_setup(sw_icrc_check__every_flipped_bit_is_seen, begin),
        cmocka_unit_test_setup(sw_icrc_check__random_damage_passes_once_in_2_15, begin),
        cmocka_unit_test_setup(sw_icrc_check__too_short_or_long, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
