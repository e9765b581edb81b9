/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/icrc.h"

#include <assert.h>
#include <isa-l/crc.h>
#include <string.h>

#include "wire/bytes.h"
#include "wire/packet.h"
#include "wire/vector_halves.h"

/* Offsets behind the 8 bytes of ones. */
enum {
    ONES = 8,
    V4_TOTAL_LENGTH = ONES + 2,
    V4_ID = ONES + 4,
    V4_FLAGS = ONES + 6,
    V6_PAYLOAD_LENGTH = ONES + 4,
    UDP_LENGTH = 4, /* in the UDP header */
    BTH_MASKED = 4, /* in the BTH: FECN, BECN, reserved */
};
enum { DONT_FRAGMENT = 0x40, IPV4_START = 0x45, IPV6_START = 0x6f };

static bool by_tables;

void sw_icrc_use_tables(bool tables)
{
    by_tables = tables;
}

static uint32_t crc_add(uint32_t crc, const void *bytes, size_t len)
{
    if (__builtin_expect(by_tables, 0))
        return crc32_gzip_refl_base(crc, (uint8_t *)bytes, len);
    crc = crc32_gzip_refl(crc, bytes, len);
    sw_vector_halves_release();
    return crc;
}

static uint8_t *ipv4_init(uint8_t *to, const struct sw_flow *from)
{
    memset(to, 0, SW_IPV4_BYTES);
    to[0] = IPV4_START;
    to[1] = 0xff;
    to[8] = 0xff;
    to[9] = SW_IPPROTO_UDP;
    sw_be16_store(to + 10, 0xffff);
    memcpy(to + 12, from->src, 4);
    memcpy(to + 16, from->dst, 4);
    return to + SW_IPV4_BYTES;
}

static uint8_t *ipv6_init(uint8_t *to, const struct sw_flow *from)
{
    memset(to, 0xff, 8);
    to[0] = IPV6_START;
    to[6] = SW_IPPROTO_UDP;
    memcpy(to + 8, from->src, 16);
    memcpy(to + 24, from->dst, 16);
    return to + SW_IPV6_BYTES;
}

void sw_icrc_flow_init(struct sw_icrc_flow *flow, const struct sw_flow *from)
{
    memset(flow->bytes, 0xff, ONES);
    uint8_t *udp =
        from->is_ipv6 ? ipv6_init(flow->bytes + ONES, from) : ipv4_init(flow->bytes + ONES, from);
    sw_be16_store(udp, from->src_port);
    sw_be16_store(udp + 2, from->dst_port);
    memset(udp + 4, 0xff, 4);
    flow->len = (uint8_t)(udp + SW_UDP_BYTES - flow->bytes);
    flow->is_ipv6 = from->is_ipv6;
    flow->dont_fragment = from->dont_fragment;
}

/* One call of ISA-L for all headers: it takes some 20 ns for any length up to 100 bytes. */
static uint32_t headers_crc(const struct sw_icrc_flow *flow, struct sw_ip_id ip_id,
                            const uint8_t *headers, size_t header_len, size_t datagram_len)
{
    uint8_t bytes[SW_ICRC_PREFIX_MAX + SW_HEADERS_MAX];
    uint8_t *bth = bytes + flow->len, *udp = bth - SW_UDP_BYTES;
    uint16_t udp_len = (uint16_t)(datagram_len + SW_UDP_BYTES);
    memcpy(bytes, flow->bytes, sizeof(flow->bytes));
    sw_be16_store(udp + UDP_LENGTH, udp_len);
    if (flow->is_ipv6) {
        sw_be16_store(bytes + V6_PAYLOAD_LENGTH, udp_len);
    } else {
        sw_be16_store(bytes + V4_TOTAL_LENGTH, (uint16_t)(udp_len + SW_IPV4_BYTES));
        sw_be16_store(bytes + V4_ID, ip_id.id);
        bytes[V4_FLAGS] = ip_id.dont_fragment ? DONT_FRAGMENT : 0;
    }
    memcpy(bth, headers, header_len);
    bth[BTH_MASKED] = 0xff;
    return crc_add(0, bytes, flow->len + header_len);
}

/* What an identification changes in the CRC at the end of a prefix, by its four bits of each place:
 * CRCs are linear. */
static uint32_t id_change(uint16_t id)
{
    static const uint32_t by_nibble[4][16] = {
        {0x00000000, 0x0ee7e8d1, 0x1dcfd1a2, 0x13283973, 0x3b9fa344, 0x35784b95, 0x265072e6,
         0x28b79a37, 0x773f4688, 0x79d8ae59, 0x6af0972a, 0x64177ffb, 0x4ca0e5cc, 0x42470d1d,
         0x516f346e, 0x5f88dcbf},
        {0x00000000, 0xee7e8d10, 0x078c1c61, 0xe9f29171, 0x0f1838c2, 0xe166b5d2, 0x089424a3,
         0xe6eaa9b3, 0x1e307184, 0xf04efc94, 0x19bc6de5, 0xf7c2e0f5, 0x11284946, 0xff56c456,
         0x16a45527, 0xf8dad837},
        {0x00000000, 0xf1da05aa, 0x38c50d15, 0xc91f08bf, 0x718a1a2a, 0x80501f80, 0x494f173f,
         0xb8951295, 0xe3143454, 0x12ce31fe, 0xdbd13941, 0x2a0b3ceb, 0x929e2e7e, 0x63442bd4,
         0xaa5b236b, 0x5b8126c1},
        {0x00000000, 0x1d596ee9, 0x3ab2ddd2, 0x27ebb33b, 0x7565bba4, 0x683cd54d, 0x4fd76676,
         0x528e089f, 0xeacb7748, 0xf79219a1, 0xd079aa9a, 0xcd20c473, 0x9faeccec, 0x82f7a205,
         0xa51c113e, 0xb8457fd7},
    };
    return by_nibble[0][id & 15] ^ by_nibble[1][id >> 4 & 15] ^ by_nibble[2][id >> 8 & 15] ^
           by_nibble[3][id >> 12];
}

/* Up to the ninth byte of the BTH. */
static uint32_t prefix_crc(const struct sw_icrc_flow *flow, struct sw_icrc_prefix *prefix,
                           struct sw_ip_id ip_id, const uint8_t *datagram, size_t len)
{
    if (prefix->datagram_len != len || prefix->dont_fragment != ip_id.dont_fragment ||
        memcmp(prefix->bth, datagram, sizeof(prefix->bth)) != 0) {
        const struct sw_ip_id zero = {0, ip_id.dont_fragment};
        prefix->crc = headers_crc(flow, zero, datagram, sizeof(prefix->bth), len);
        prefix->datagram_len = len;
        prefix->dont_fragment = ip_id.dont_fragment;
        memcpy(prefix->bth, datagram, sizeof(prefix->bth));
    }
    return flow->is_ipv6 ? prefix->crc : prefix->crc ^ id_change(ip_id.id);
}

static uint32_t datagram_crc(const struct sw_icrc_flow *flow, struct sw_icrc_prefix *prefix,
                             struct sw_ip_id ip_id, const uint8_t *datagram, size_t len)
{
    const size_t from = sizeof(prefix->bth);
    return crc_add(prefix_crc(flow, prefix, ip_id, datagram, len), datagram + from,
                   len - from - SW_ICRC_BYTES);
}

void sw_icrc_seal(const struct sw_icrc_flow *flow, struct sw_icrc_prefix *prefix, uint16_t ip_id,
                  uint8_t *datagram, size_t len)
{
    const struct sw_ip_id id = {ip_id, flow->dont_fragment};
    assert(len >= SW_BTH_BYTES + SW_ICRC_BYTES);
    sw_le32_store(datagram + len - SW_ICRC_BYTES, datagram_crc(flow, prefix, id, datagram, len));
}

uint32_t sw_icrc_begin(const struct sw_icrc_flow *flow, uint16_t ip_id, const uint8_t *headers,
                       size_t header_len, size_t datagram_len)
{
    assert(header_len >= SW_BTH_BYTES && header_len <= SW_HEADERS_MAX);
    struct sw_ip_id id = {ip_id, flow->dont_fragment};
    return headers_crc(flow, id, headers, header_len, datagram_len);
}

uint32_t sw_icrc_add(uint32_t crc, const void *bytes, size_t len)
{
    return len ? crc_add(crc, bytes, len) : crc;
}

size_t sw_icrc_finish(uint32_t crc, uint32_t payload_len, uint8_t *trailer)
{
    uint32_t pad = sw_packet_pad(payload_len);
    memset(trailer, 0, pad);
    sw_le32_store(trailer + pad, sw_icrc_add(crc, trailer, pad));
    return pad + SW_ICRC_BYTES;
}

/*
 * CRCs are polynomials over GF(2) modulo the CRC's; the most significant bit is the coefficient of
 * x^0. A byte more behind a difference multiplies it by x^8.
 */
#define POLYNOMIAL 0xedb88320u
#define ONE 0x80000000u

static uint32_t multiply_poly(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (int i = 0; i < 32; i++) {
        product ^= b & -(a >> 31);
        a <<= 1;
        b = (b >> 1) ^ (POLYNOMIAL & -(b & 1));
    }
    return product;
}

/* x^(-8 bytes), bytes < 2^16. */
static uint32_t power_back(size_t bytes)
{
    static const uint32_t powers[16] = {/* x^(-8 * 2^i) */
                                        0x6567cb95, 0xd7125358, 0x5b358fd3, 0x2e9bb40b,
                                        0x12a59a49, 0x8df9403d, 0x5139de12, 0xba340226,
                                        0x29c45641, 0x12fbc105, 0xecd30c55, 0x3755ebd8,
                                        0x24ee460c, 0x23783fcf, 0x479933fc, 0xa39442a5};
    uint32_t power = ONE;
    for (int i = 0; i < 16; i++)
        if (bytes >> i & 1)
            power = multiply_poly(power, powers[i]);
    return power;
}

/* The change in the 4 bytes from the identification on that makes this difference of CRCs. There is
 * always exactly one; read with the first byte lowest. */
static uint32_t explain_difference(uint32_t difference, size_t datagram_len,
                                   struct sw_icrc_rewind *rewind)
{
    if (rewind->power == 0 || rewind->datagram_len != datagram_len) {
        /* From the identification on: to the end of the headers, and the datagram but its ICRC. */
        size_t bytes = SW_IPV4_BYTES - 4 + SW_UDP_BYTES + datagram_len - SW_ICRC_BYTES;
        *rewind = (struct sw_icrc_rewind){datagram_len, power_back(bytes)};
    }
    return multiply_poly(difference, rewind->power);
}

bool sw_icrc_check(const struct sw_icrc_flow *flow, struct sw_icrc_prefix *prefix,
                   const uint8_t *datagram, size_t len, struct sw_icrc_rewind *rewind,
                   struct sw_ip_id *ip_id)
{
    if (len < SW_BTH_BYTES + SW_ICRC_BYTES || len > SW_DATAGRAM_MAX)
        return false;
    uint32_t crc = datagram_crc(flow, prefix, *ip_id, datagram, len);
    uint32_t difference = crc ^ sw_le32_load(datagram + len - SW_ICRC_BYTES);
    if (difference == 0)
        return true;
    if (flow->is_ipv6)
        return false;
    uint32_t change = explain_difference(difference, len, rewind);
    if (change & ~(0xffffu | DONT_FRAGMENT << 16))
        return false;
    ip_id->id ^= (uint16_t)((change & 0xff) << 8 | (change >> 8 & 0xff));
    ip_id->dont_fragment ^= (change >> 16) != 0;
    return true;
}
