/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture.h"

#include <stdlib.h>
#include <string.h>

#include "wire/bytes.h"

enum { FILE_HEADER = 24, RECORD_HEADER = 16, ETHERNET = 14, LINKTYPE_ETHERNET = 1 };
enum { TYPE_IPV4 = 0x0800, TYPE_IPV6 = 0x86dd };
static const uint32_t magic = 0xa1b2c3d4; /* microseconds; in the byte order of the writer */

static FILE *open_or_exit(const char *path, const char *mode)
{
    FILE *capture = fopen(path, mode);
    if (!capture) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    return capture;
}

FILE *capture_open(const char *path)
{
    FILE *capture = open_or_exit(path, "re");
    uint8_t header[FILE_HEADER];
    if (fread(header, 1, sizeof(header), capture) != sizeof(header) ||
        memcmp(header, &magic, sizeof(magic)) != 0) {
        fprintf(stderr, "%s: no capture of this byte order\n", path);
        exit(EXIT_FAILURE);
    }
    return capture;
}

FILE *capture_create(const char *path)
{
    struct {
        uint32_t magic;
        uint16_t major, minor;
        uint32_t zone, accuracy, frame_max, linktype;
    } header = {magic, 2, 4, 0, 0, CAPTURE_FRAME_MAX, LINKTYPE_ETHERNET};
    FILE *capture = open_or_exit(path, "we");
    fwrite(&header, 1, sizeof(header), capture);
    return capture;
}

size_t capture_read(FILE *capture, uint8_t frame[CAPTURE_FRAME_MAX])
{
    uint32_t record[RECORD_HEADER / 4]; /* seconds, microseconds, bytes here, bytes on the wire */
    if (fread(record, 1, sizeof(record), capture) != sizeof(record))
        return 0;
    if (record[2] > CAPTURE_FRAME_MAX || record[2] != record[3] ||
        fread(frame, 1, record[2], capture) != record[2]) {
        fprintf(stderr, "a frame of the capture is not whole\n");
        exit(EXIT_FAILURE);
    }
    return record[2];
}

void capture_write(FILE *capture, const uint8_t *frame, size_t len)
{
    uint32_t record[RECORD_HEADER / 4] = {0, 0, (uint32_t)len, (uint32_t)len};
    fwrite(record, 1, sizeof(record), capture);
    fwrite(frame, 1, len, capture);
}

static bool parse_ipv4(const uint8_t *ip, size_t room, struct sw_flow *flow)
{
    if (room < SW_IPV4_BYTES + SW_UDP_BYTES || ip[0] != 0x45 || ip[9] != SW_IPPROTO_UDP)
        return false;
    *flow = (struct sw_flow){
        .tos = ip[1], .ttl = ip[8], .ip_id = sw_be16_load(ip + 4), .dont_fragment = ip[6] & 0x40};
    memcpy(flow->src, ip + 12, 4);
    memcpy(flow->dst, ip + 16, 4);
    return true;
}

static bool parse_ipv6(const uint8_t *ip, size_t room, struct sw_flow *flow)
{
    if (room < SW_IPV6_BYTES + SW_UDP_BYTES || ip[0] >> 4 != 6 || ip[6] != SW_IPPROTO_UDP)
        return false;
    *flow =
        (struct sw_flow){.is_ipv6 = true, .tos = (uint8_t)(sw_be16_load(ip) >> 4), .ttl = ip[7]};
    memcpy(flow->src, ip + 8, 16);
    memcpy(flow->dst, ip + 24, 16);
    return true;
}

bool frame_parse(const uint8_t *frame, size_t len, struct sw_flow *flow, const uint8_t **datagram,
                 size_t *datagram_len)
{
    if (len < ETHERNET)
        return false;
    uint16_t type = sw_be16_load(frame + 12);
    const uint8_t *ip = frame + ETHERNET;
    if (!(type == TYPE_IPV4   ? parse_ipv4(ip, len - ETHERNET, flow)
          : type == TYPE_IPV6 ? parse_ipv6(ip, len - ETHERNET, flow)
                              : false))
        return false;
    const uint8_t *udp = ip + (flow->is_ipv6 ? SW_IPV6_BYTES : SW_IPV4_BYTES);
    flow->src_port = sw_be16_load(udp);
    flow->dst_port = sw_be16_load(udp + 2);
    *datagram = udp + SW_UDP_BYTES;
    *datagram_len = (size_t)sw_be16_load(udp + 4) - SW_UDP_BYTES;
    return flow->dst_port == SW_ROCE_PORT && *datagram_len <= (size_t)(frame + len - *datagram);
}

static uint16_t checksum(uint32_t sum, const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i + 1 < len; i += 2)
        sum += sw_be16_load(bytes + i);
    if (len % 2)
        sum += (uint32_t)bytes[len - 1] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

static uint8_t *build_ip(const struct sw_flow *flow, uint16_t udp_len, uint8_t *ip)
{
    if (flow->is_ipv6) {
        sw_be32_store(ip, 6u << 28 | (uint32_t)flow->tos << 20);
        sw_be16_store(ip + 4, udp_len);
        ip[6] = SW_IPPROTO_UDP;
        ip[7] = flow->ttl;
        memcpy(ip + 8, flow->src, 16);
        memcpy(ip + 24, flow->dst, 16);
        return ip + SW_IPV6_BYTES;
    }
    memset(ip, 0, SW_IPV4_BYTES);
    ip[0] = 0x45;
    ip[1] = flow->tos;
    sw_be16_store(ip + 2, (uint16_t)(udp_len + SW_IPV4_BYTES));
    sw_be16_store(ip + 4, flow->ip_id);
    ip[6] = flow->dont_fragment ? 0x40 : 0;
    ip[8] = flow->ttl;
    ip[9] = SW_IPPROTO_UDP;
    memcpy(ip + 12, flow->src, 4);
    memcpy(ip + 16, flow->dst, 4);
    sw_be16_store(ip + 10, checksum(0, ip, SW_IPV4_BYTES));
    return ip + SW_IPV4_BYTES;
}

size_t datagram_build(const struct sw_icrc_flow *flow, uint16_t ip_id,
                      const struct sw_packet *packet, uint8_t *to)
{
    size_t at = sw_packet_encode_headers(packet, to, SW_HEADERS_MAX);
    size_t len = sw_packet_len(sw_opcode_of(packet->bth.opcode), packet->payload_len);
    uint32_t crc = sw_icrc_begin(flow, ip_id, to, at, len);
    crc = sw_icrc_add(crc, packet->payload, packet->payload_len);
    if (packet->payload_len)
        memcpy(to + at, packet->payload, packet->payload_len);
    at += packet->payload_len;
    return at + sw_icrc_finish(crc, packet->payload_len, to + at);
}

size_t frame_build(const struct sw_flow *flow, const uint8_t *datagram, size_t datagram_len,
                   uint8_t frame[CAPTURE_FRAME_MAX])
{
    static const uint8_t addresses[12] = {0x02, 0x77, 0, 0, 0, 12, 0x02, 0x77, 0, 0, 0, 11};
    uint16_t udp_len = (uint16_t)(datagram_len + SW_UDP_BYTES);
    memcpy(frame, addresses, sizeof(addresses));
    sw_be16_store(frame + 12, flow->is_ipv6 ? TYPE_IPV6 : TYPE_IPV4);
    uint8_t *udp = build_ip(flow, udp_len, frame + ETHERNET);
    sw_be16_store(udp, flow->src_port);
    sw_be16_store(udp + 2, flow->dst_port);
    sw_be16_store(udp + 4, udp_len);
    sw_be16_store(udp + 6, 0);
    memcpy(udp + SW_UDP_BYTES, datagram, datagram_len);
    if (flow->is_ipv6) /* the pseudo header is the addresses, the length and the protocol */
        sw_be16_store(udp + 6, checksum(udp_len + SW_IPPROTO_UDP, udp - 32, udp_len + 32));
    return (size_t)(udp + SW_UDP_BYTES + datagram_len - frame);
}
