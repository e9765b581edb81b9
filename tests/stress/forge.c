/* SPDX-License-Identifier: BSD-2-Clause */
#include "forge.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "verbs_util/pair.h"
#include "wire/aeth.h"
#include "wire/bytes.h"
#include "wire/packet.h"
#include "wire/psn.h"

enum { NOBODY = 65534, BATCH = 32, PAYLOAD_MAX = 4096, CONGESTED = 3, THIRD_HOST = 77 };
enum { DATAGRAM_MAX = SW_HEADERS_MAX + PAYLOAD_MAX + SW_TRAILER_MAX };

struct forged {
    uint8_t ip[SW_IPV4_BYTES + SW_UDP_BYTES]; /* of those with a forged address */
    uint8_t bytes[DATAGRAM_MAX];
    uint32_t len_bytes;
};

static uint32_t below(struct forge *forge, uint32_t bound)
{
    return vu_random_below(&forge->random, bound);
}

static bool one_in(struct forge *forge, uint32_t count)
{
    return below(forge, count) == 0;
}

static struct sw_flow flow_to(const struct forge *forge, int to, uint16_t port)
{
    struct sw_flow flow = {.dont_fragment = true, .src_port = port, .dst_port = SW_ROCE_PORT};
    memcpy(flow.src, forge->sides[!to].address, 4);
    memcpy(flow.dst, forge->sides[to].address, 4);
    return flow;
}

static struct sockaddr_in address_of(const struct forge_side *side, uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    memcpy(&address.sin_addr, side->address, 4);
    return address;
}

/* Another user's socket, from which identification 0 and DF leave. */
static void open_way(struct forge *forge, int to, struct forge_way *way, int tos)
{
    struct sockaddr_in own = address_of(&forge->sides[!to], 0);
    socklen_t len = sizeof(own);
    const int probe = IP_PMTUDISC_DO;
    VU_EQ(seteuid(NOBODY), 0);
    way->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    VU_CHECK(bind(way->fd, (struct sockaddr *)&own, len) == 0, "%s", strerror(errno));
    VU_EQ(seteuid(0), 0);
    VU_EQ(setsockopt(way->fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof(probe)), 0);
    VU_EQ(setsockopt(way->fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos)), 0);
    VU_EQ(getsockname(way->fd, (struct sockaddr *)&own, &len), 0);
    const struct sw_flow flow = flow_to(forge, to, ntohs(own.sin_port));
    sw_icrc_flow_init(&way->flow, &flow);
}

void forge_open(struct forge *forge, const struct forge_side sides[2], uint64_t seed)
{
    *forge = (struct forge){.sides = sides, .random = {seed}};
    for (int to = 0; to < 2; to++) {
        vu_enter_host(to != 0); /* the other one's */
        for (int i = 0; i < FORGE_SOCKETS; i++)
            open_way(forge, to, &forge->ways[to][i], i % 2 ? CONGESTED : 0);
        forge->raw[to] = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
        VU_CHECK(forge->raw[to] >= 0, "%s", strerror(errno));
    }
}

void forge_close(struct forge *forge)
{
    for (int to = 0; to < 2; to++) {
        for (int i = 0; i < FORGE_SOCKETS; i++)
            close(forge->ways[to][i].fd);
        close(forge->raw[to]);
    }
}

static uint32_t draw_qpn(struct forge *forge, const struct forge_side *side)
{
    const uint32_t qpn = side->qpns[below(forge, FORGE_QPS)];
    switch (below(forge, 8)) {
    case 0:
        return below(forge, 1u << 24);
    case 1:
        return (qpn + below(forge, 64)) & SW_PSN_MASK; /* of the same process, but nobody's */
    default:
        return qpn;
    }
}

/* Sidewire's mark of any life, none, or anything. */
static uint8_t draw_mark(struct forge *forge)
{
    const uint8_t life = (uint8_t)below(forge, 16);
    return one_in(forge, 4)   ? 0
           : one_in(forge, 8) ? (uint8_t)below(forge, 128)
                              : (uint8_t)(0x50 | life);
}

static uint8_t draw_syndrome(struct forge *forge)
{
    static const uint8_t usual[] = {0x1f, 0x60, 0x61, 0x62, 0x63, 0x64, 0x20};
    return one_in(forge, 8) ? (uint8_t)below(forge, 256) : usual[below(forge, sizeof(usual))];
}

static uint32_t draw_payload(struct forge *forge, const struct sw_opcode *opcode)
{
    if (!opcode->has_payload)
        return 0;
    return one_in(forge, 16) ? PAYLOAD_MAX : below(forge, 64);
}

static const struct sw_opcode *draw_opcode(struct forge *forge)
{
    static const uint8_t targeted[] = {0x11, 0x10, 0x04, 0x0a, 0x0c, 0x81};
    const struct sw_opcode *opcode = NULL;
    if (one_in(forge, 2))
        return sw_opcode_of(targeted[below(forge, sizeof(targeted))]);
    while (!opcode)
        opcode = sw_opcode_of((uint8_t)below(forge, 256));
    return opcode;
}

static void draw_packet(struct forge *forge, const struct forge_side *side, struct sw_packet *out)
{
    const struct sw_opcode *opcode = draw_opcode(forge);
    const uint32_t payload = draw_payload(forge, opcode);
    const uint32_t rkey = one_in(forge, 4) ? below(forge, 1u << 20) : side->rkey;
    const uint64_t addr = side->addr + below(forge, (uint32_t)side->len_bytes);
    *out = (struct sw_packet){
        .opcode = opcode,
        .bth = {.opcode = opcode->number,
                .pkey = SW_PKEY_DEFAULT,
                .dest_qpn = draw_qpn(forge, side),
                .psn = below(forge, 1u << 24),
                .ack_req = one_in(forge, 2),
                .becn = opcode->service == SW_SERVICE_CNP,
                .reserved7 = opcode->service == SW_SERVICE_CNP ? 0 : draw_mark(forge)},
        .reth = {.addr = addr,
                 .rkey = rkey,
                 .len_bytes =
                     opcode->kind == SW_PACKET_READ_REQUEST ? below(forge, 1u << 16) : payload},
        .atomic = {.addr = addr & ~7ull, .rkey = rkey, .swap_add = below(forge, 1000)},
        .aeth = {.syndrome = draw_syndrome(forge), .msn = below(forge, 1u << 24)},
        .inv_rkey = rkey,
        .payload_len = payload,
    };
}

/* From the BTH to the ICRC, which is not written yet. */
static uint32_t write_packet(struct forge *forge, const struct forge_side *side, uint8_t *out)
{
    struct sw_packet packet;
    draw_packet(forge, side, &packet);
    const uint32_t header = (uint32_t)sw_packet_encode_headers(&packet, out, SW_HEADERS_MAX);
    vu_random_fill(&forge->random, out + header, packet.payload_len);
    uint32_t end = header + packet.payload_len;
    for (; end % 4; end++)
        out[end] = 0;
    return end + SW_ICRC_BYTES;
}

static void seal(struct forge *forge, const struct sw_icrc_flow *flow,
                 struct sw_icrc_prefix *prefix, uint16_t ip_id, struct forged *out)
{
    sw_icrc_seal(flow, prefix, ip_id, out->bytes, out->len_bytes);
    if (one_in(forge, 64)) /* damaged, and mostly no packet any more */
        out->bytes[below(forge, out->len_bytes)] ^= (uint8_t)(1 + below(forge, 255));
    if (one_in(forge, 64))
        out->len_bytes = below(forge, out->len_bytes);
}

/* By socket: from the peer's host. Returns how many left. */
static uint32_t send_plain(struct forge *forge, int to, uint32_t count)
{
    static struct forged forged[BATCH];
    struct forge_way *way = &forge->ways[to][below(forge, FORGE_SOCKETS)];
    struct sockaddr_in address = address_of(&forge->sides[to], SW_ROCE_PORT);
    struct mmsghdr messages[BATCH] = {0};
    struct iovec pieces[BATCH];
    for (uint32_t i = 0; i < count; i++) {
        forged[i].len_bytes = write_packet(forge, &forge->sides[to], forged[i].bytes);
        seal(forge, &way->flow, &way->prefix, 0, &forged[i]);
        pieces[i] = (struct iovec){forged[i].bytes, forged[i].len_bytes};
        messages[i].msg_hdr = (struct msghdr){.msg_name = &address,
                                              .msg_namelen = sizeof(address),
                                              .msg_iov = &pieces[i],
                                              .msg_iovlen = 1};
    }
    const int sent = sendmmsg(way->fd, messages, count, 0);
    return sent > 0 ? (uint32_t)sent : 0;
}

static void write_ip(struct forge *forge, int to, struct forged *out)
{
    const uint16_t port = (uint16_t)(0xc000 + below(forge, 0x4000)), ip_id = 1;
    struct sw_flow flow = flow_to(forge, to, port);
    struct sw_icrc_flow icrc;
    struct sw_icrc_prefix prefix = {0};
    if (one_in(forge, 2))
        flow.src[3] = THIRD_HOST;
    out->len_bytes = write_packet(forge, &forge->sides[to], out->bytes);
    sw_icrc_flow_init(&icrc, &flow);
    seal(forge, &icrc, &prefix, ip_id, out);
    const struct ip ip = {.ip_v = 4,
                          .ip_hl = 5,
                          .ip_tos = one_in(forge, 4) ? CONGESTED : 0,
                          .ip_len = htons((uint16_t)(sizeof(out->ip) + out->len_bytes)),
                          .ip_id = htons(ip_id),
                          .ip_off = htons(IP_DF),
                          .ip_ttl = 64,
                          .ip_p = IPPROTO_UDP,
                          .ip_src.s_addr = htonl(sw_be32_load(flow.src)),
                          .ip_dst.s_addr = htonl(sw_be32_load(flow.dst))};
    const struct udphdr udp = {.source = htons(port),
                               .dest = htons(SW_ROCE_PORT),
                               .len = htons((uint16_t)(SW_UDP_BYTES + out->len_bytes))};
    memcpy(out->ip, &ip, sizeof(ip));
    memcpy(out->ip + sizeof(ip), &udp, sizeof(udp));
}

/* With the peer's address and any port, or with that of a third host. */
static uint32_t send_raw(struct forge *forge, int to, uint32_t count)
{
    static struct forged forged[BATCH];
    struct sockaddr_in address = address_of(&forge->sides[to], 0);
    struct mmsghdr messages[BATCH] = {0};
    struct iovec pieces[BATCH][2];
    for (uint32_t i = 0; i < count; i++) {
        write_ip(forge, to, &forged[i]);
        pieces[i][0] = (struct iovec){forged[i].ip, sizeof(forged[i].ip)};
        pieces[i][1] = (struct iovec){forged[i].bytes, forged[i].len_bytes};
        messages[i].msg_hdr = (struct msghdr){.msg_name = &address,
                                              .msg_namelen = sizeof(address),
                                              .msg_iov = pieces[i],
                                              .msg_iovlen = 2};
    }
    const int sent = sendmmsg(forge->raw[to], messages, count, 0);
    return sent > 0 ? (uint32_t)sent : 0;
}

void forge_send(struct forge *forge, uint32_t count)
{
    while (count) {
        const uint32_t batch = count < BATCH ? count : BATCH;
        const int to = (int)below(forge, 2);
        forge->sent += one_in(forge, 3) ? send_raw(forge, to, batch) : send_plain(forge, to, batch);
        count -= batch;
    }
}
