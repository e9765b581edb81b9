/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The codec of RoCEv2 packets: whatever a datagram holds, what is taken out of it lies within it
 * and makes the same packet again, and a packet that we finish passes the check of its ICRC and no
 * longer passes when a bit of it is changed. The same of packets that come in one.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "wire/icrc.h"
#include "wire/joint.h"
#include "wire/packet.h"

enum { INPUT_MAX = 8192 };

static void demand(bool holds)
{
    if (!holds)
        abort();
}

/* Headers with bytes that are reserved and not kept. */
static bool keeps_all(const struct sw_opcode *opcode)
{
    return !(opcode->headers &
             (SW_HEADER_XRCETH | SW_HEADER_DETH | SW_HEADER_CNP | SW_HEADER_PIGGYBACK));
}

static void check_again(const struct sw_packet *packet, const uint8_t *datagram, size_t len)
{
    static uint8_t again[INPUT_MAX];
    size_t header_len = sw_packet_encode_headers(packet, again, sizeof(again));
    demand(header_len == packet->opcode->header_len);
    demand(packet->payload == datagram + header_len);
    demand(header_len + packet->payload_len + packet->bth.pad + SW_ICRC_BYTES == len);
    if (keeps_all(packet->opcode))
        demand(memcmp(again, datagram, header_len) == 0);
    memcpy(again + header_len, packet->payload, len - header_len);
    struct sw_packet twice;
    demand(sw_packet_decode(again, len, &twice) == SW_PACKET_FAULT_NONE);
    demand(twice.payload_len == packet->payload_len && twice.bth.pad == packet->bth.pad);
    uint8_t thrice[SW_HEADERS_MAX];
    demand(sw_packet_encode_headers(&twice, thrice, sizeof(thrice)) == header_len);
    demand(memcmp(thrice, again, header_len) == 0);
}

static void check_icrc(struct sw_packet *packet, bool is_ipv6)
{
    static uint8_t made[INPUT_MAX];
    struct sw_flow sent = {.is_ipv6 = is_ipv6, .ip_id = (uint16_t)packet->bth.psn, .src = {10}};
    struct sw_icrc_flow flow;
    struct sw_icrc_rewind rewind = {0};
    struct sw_icrc_prefix prefix = {0};
    struct sw_ip_id found = {0, true};
    size_t len = sw_packet_len(packet->opcode, packet->payload_len);
    size_t at = sw_packet_encode_headers(packet, made, sizeof(made));
    sw_icrc_flow_init(&flow, &sent);
    uint32_t crc = sw_icrc_begin(&flow, sent.ip_id, made, at, len);
    crc = sw_icrc_add(crc, packet->payload, packet->payload_len);
    memcpy(made + at, packet->payload, packet->payload_len);
    at += packet->payload_len;
    at += sw_icrc_finish(crc, packet->payload_len, made + at);
    demand(at == len);
    demand(sw_icrc_check(&flow, &prefix, made, len, &rewind, &found));
    demand(is_ipv6 || (found.id == sent.ip_id && !found.dont_fragment));
    made[packet->bth.psn % len] ^= 1;
    bool masked = packet->bth.psn % len == 4;
    bool good = sw_icrc_check(&flow, &prefix, made, len, &rewind, &found);
    demand(good == masked || (good && !is_ipv6 && found.id != sent.ip_id));
}

/* The packets that are taken out of a sound joint packet lie within it, one behind the other. */
static void check_joint(const uint8_t *data, size_t size)
{
    const uint8_t *packet, *end = data + SW_BTH_BYTES;
    uint32_t at = 0, len;
    if (size < SW_JOINT_BYTES || !sw_joint_is_sound(data, (uint32_t)size))
        return;
    while (sw_joint_next(data, (uint32_t)size, &at, &packet, &len)) {
        demand(packet == end + SW_JOINT_EACH_BYTES && len >= SW_BTH_BYTES + SW_ICRC_BYTES);
        demand(len % 4 == 0 && !sw_joint_is(packet) && sw_joint_is_for(data, packet));
        end = packet + len - SW_ICRC_BYTES;
        demand(end + SW_ICRC_BYTES <= data + size);
    }
    demand(end + SW_ICRC_BYTES == data + size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sw_packet packet;
    struct sw_icrc_rewind rewind = {0};
    struct sw_icrc_prefix prefix = {0};
    struct sw_ip_id found = {0, true};
    struct sw_icrc_flow flow;
    if (size > INPUT_MAX - 8)
        return 0;
    sw_icrc_flow_init(&flow, &(struct sw_flow){.dont_fragment = true});
    sw_icrc_check(&flow, &prefix, data, size, &rewind, &found);
    check_joint(data, size);
    enum sw_packet_fault fault = sw_packet_decode(data, size, &packet);
    demand(sw_packet_fault_name(fault) != NULL);
    if (fault)
        return 0;
    check_again(&packet, data, size);
    check_icrc(&packet, data[size - 1] & 1);
    return 0;
}
