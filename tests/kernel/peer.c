/* SPDX-License-Identifier: BSD-2-Clause */
#include "peer.h"

#include <arpa/inet.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "capture.h"

static void die(const char *what)
{
    perror(what);
    exit(EXIT_FAILURE);
}

/* Returns the length of the socket address, and the 4 or 16 bytes of the address itself. */
static socklen_t address_of(const char *text, struct sockaddr_in6 *to, uint8_t bytes[16])
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)to;
    memset(to, 0, sizeof(*to));
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(SW_ROCE_PORT);
        memcpy(bytes, &v4->sin_addr, 4);
        return sizeof(*v4);
    }
    if (inet_pton(AF_INET6, text, &to->sin6_addr) != 1)
        die(text);
    to->sin6_family = AF_INET6;
    to->sin6_port = htons(SW_ROCE_PORT);
    memcpy(bytes, &to->sin6_addr, 16);
    return sizeof(*to);
}

void peer_open(struct peer *peer, const char *own, const char *guest)
{
    struct sockaddr_in6 from;
    *peer = (struct peer){
        .out = {.dont_fragment = true, .src_port = SW_ROCE_PORT, .dst_port = SW_ROCE_PORT}};
    socklen_t from_len = address_of(own, &from, peer->out.src);
    peer->to_len = address_of(guest, &peer->to, peer->out.dst);
    peer->out.is_ipv6 = from.sin6_family == AF_INET6;
    peer->fd = socket(from.sin6_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int discover = IP_PMTUDISC_DO, room = 8 << 20; /* for a burst while we do not look */
    if (peer->fd < 0 || bind(peer->fd, (struct sockaddr *)&from, from_len) < 0)
        die(own);
    setsockopt(peer->fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
    /* Without it the kernel chooses an identification, which the ICRC covers. */
    if (!peer->out.is_ipv6 &&
        setsockopt(peer->fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof(discover)) < 0)
        die("IP_MTU_DISCOVER");
    /* rdma_rxe leaves the UDP checksum out, which IPv6 forbids unless the receiver allows it. */
    int yes = 1;
    if (peer->out.is_ipv6 && setsockopt(peer->fd, SOL_UDP, UDP_NO_CHECK6_RX, &yes, sizeof(yes)) < 0)
        die("UDP_NO_CHECK6_RX");
    sw_icrc_flow_init(&peer->out_icrc, &peer->out);
}

size_t peer_encode(const struct peer *peer, const struct sw_packet *packet, uint16_t ip_id,
                   uint8_t to[PEER_DATAGRAM_MAX])
{
    return datagram_build(&peer->out_icrc, ip_id, packet, to);
}

void peer_send_bytes(const struct peer *peer, const uint8_t *datagram, size_t len)
{
    if (sendto(peer->fd, datagram, len, 0, (const struct sockaddr *)&peer->to, peer->to_len) < 0)
        die("sendto");
}

void peer_send(const struct peer *peer, const struct sw_packet *packet)
{
    uint8_t datagram[PEER_DATAGRAM_MAX];
    peer_send_bytes(peer, datagram, peer_encode(peer, packet, 0, datagram));
}

void peer_send_segments(const struct peer *peer, const uint8_t *datagrams, size_t len,
                        size_t segment_len)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(uint16_t))];
    } control = {.room = {0}};
    uint16_t segment = (uint16_t)segment_len;
    control.header = (struct cmsghdr){
        .cmsg_level = SOL_UDP, .cmsg_type = UDP_SEGMENT, .cmsg_len = CMSG_LEN(sizeof(segment))};
    memcpy(CMSG_DATA(&control.header), &segment, sizeof(segment));
    struct iovec bytes = {(void *)(uintptr_t)datagrams, len};
    struct msghdr message = {.msg_name = (void *)(uintptr_t)&peer->to,
                             .msg_namelen = peer->to_len,
                             .msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control.room)};
    if (sendmsg(peer->fd, &message, 0) < 0)
        die("sendmsg with UDP_SEGMENT");
}

/* What comes back: the other way round, from a port of the sender's choice, identification unseen.
 */
static bool check(struct peer *peer, struct received *received, size_t len,
                  const struct sockaddr_in6 *from)
{
    struct sw_flow flow = peer->out;
    struct sw_icrc_flow prepared;
    struct sw_icrc_prefix prefix = {0};
    memcpy(flow.src, peer->out.dst, 16);
    memcpy(flow.dst, peer->out.src, 16);
    flow.src_port = ntohs(from->sin6_port); /* where that of sockaddr_in is, too */
    sw_icrc_flow_init(&prepared, &flow);
    received->ip_id = (struct sw_ip_id){0, true};
    return sw_packet_decode(received->bytes, len, &received->packet) == SW_PACKET_FAULT_NONE &&
           sw_icrc_check(&prepared, &prefix, received->bytes, len, &peer->rewind, &received->ip_id);
}

bool peer_receive(struct peer *peer, struct received *received, int timeout_ms)
{
    struct pollfd waits = {.fd = peer->fd, .events = POLLIN};
    while (poll(&waits, 1, timeout_ms) > 0) {
        struct sockaddr_in6 from = {0};
        socklen_t from_len = sizeof(from);
        ssize_t len = recvfrom(peer->fd, received->bytes, sizeof(received->bytes), 0,
                               (struct sockaddr *)&from, &from_len);
        if (len >= 0 && check(peer, received, (size_t)len, &from))
            return true;
        peer->bad++;
        printf("a datagram of %zd bytes is no packet, or its ICRC is wrong\n", len);
    }
    return false;
}
