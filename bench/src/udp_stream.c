/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What UDP itself moves between two hosts: equal datagrams in runs of 64 KB (UDP_SEGMENT, UDP_GRO),
 * each with a CRC-32 that the sender makes and the receiver checks before it copies the payload to
 * its place. No headers, no answers, no order, nothing sent again: the ceiling for RoCEv2 on these
 * sockets. The client prints one JSON object with the bytes that came well.
 *
 * usage: udp_stream PORT SEGMENT_BYTES SECONDS [ADDRESS]     (with ADDRESS: the client)
 */
#include "endpoint.h"

#include <arpa/inet.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/icrc.h"

#define RUN_BYTES 62000u
#define RUN_ROOM 65536u
#define SEGMENTS_MAX 64u
#define MESSAGES 4
#define CRC_BYTES 4u
#define SOCKET_BYTES (8 << 20)

static uint8_t runs[MESSAGES][RUN_ROOM], place[RUN_ROOM];

static int udp_socket(const struct sockaddr_in *own)
{
    const int one = 1, room = SOCKET_BYTES, dont_fragment = IP_PMTUDISC_DO;
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || (own && bind(fd, (const struct sockaddr *)own, sizeof(*own))))
        bench_die("no UDP socket");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &dont_fragment, sizeof(dont_fragment));
    if (own && setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof(one)))
        bench_die("no UDP_GRO");
    return fd;
}

static void stream_list(struct mmsghdr messages[MESSAGES], struct iovec iov[MESSAGES], size_t bytes,
                        struct sockaddr_in *to)
{
    for (int i = 0; i < MESSAGES; i++) {
        iov[i] = (struct iovec){runs[i], bytes};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1};
        if (to) {
            messages[i].msg_hdr.msg_name = to;
            messages[i].msg_hdr.msg_namelen = sizeof(*to);
        }
    }
}

/* The bytes of a run whose segments are as they were sent. */
static uint64_t stream_take(const uint8_t *run, uint32_t len, uint32_t segment)
{
    uint64_t good = 0;
    for (uint32_t at = 0; at + segment <= len; at += segment) {
        uint32_t crc, payload = segment - CRC_BYTES;
        memcpy(&crc, run + at + payload, CRC_BYTES);
        if (sw_icrc_add(0, run + at, payload) != crc)
            continue;
        memcpy(place + at, run + at, payload);
        good += segment;
    }
    return good;
}

static void stream_serve(uint16_t port, uint32_t segment)
{
    const struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(port)};
    const int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0), fd = udp_socket(&own);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(listener, (const struct sockaddr *)&own, sizeof(own)) || listen(listener, 1))
        bench_die("cannot listen");
    const int control = accept(listener, NULL, NULL);
    uint64_t good = 0;
    char end;
    while (recv(control, &end, 1, MSG_DONTWAIT) < 0) {
        struct mmsghdr messages[MESSAGES];
        struct iovec iov[MESSAGES];
        stream_list(messages, iov, RUN_ROOM, NULL);
        const int count = recvmmsg(fd, messages, MESSAGES, MSG_DONTWAIT, NULL);
        for (int i = 0; i < count; i++)
            good += stream_take(runs[i], messages[i].msg_len, segment);
    }
    if (write(control, &good, sizeof(good)) != sizeof(good))
        bench_die("the client has gone");
}

static uint64_t send_for(int fd, struct sockaddr_in *to, uint32_t segment, double seconds)
{
    const int segment_bytes = (int)segment;
    uint32_t count = RUN_BYTES / segment;
    count = count > SEGMENTS_MAX ? SEGMENTS_MAX : count;
    if (setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment_bytes, sizeof(segment_bytes)))
        bench_die("no UDP_SEGMENT");
    const uint64_t start_ns = bench_now_ns(), end_ns = start_ns + (uint64_t)(seconds * 1e9);
    uint64_t now_ns;
    while ((now_ns = bench_now_ns()) < end_ns) {
        struct mmsghdr messages[MESSAGES];
        struct iovec iov[MESSAGES];
        for (uint32_t i = 0; i < MESSAGES * count; i++) {
            uint8_t *at = runs[i / count] + i % count * segment;
            const uint32_t crc = sw_icrc_add(0, at, segment - CRC_BYTES);
            memcpy(at + segment - CRC_BYTES, &crc, CRC_BYTES);
        }
        stream_list(messages, iov, (size_t)count * segment, to);
        if (sendmmsg(fd, messages, MESSAGES, 0) < 0)
            bench_die("cannot send");
    }
    return now_ns - start_ns;
}

static void stream_ask(const char *address, uint16_t port, uint32_t segment, double seconds)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    const int control = socket(AF_INET, SOCK_STREAM, 0);
    if (!inet_aton(address, &to.sin_addr) ||
        connect(control, (const struct sockaddr *)&to, sizeof(to)))
        bench_die("cannot connect");
    const uint64_t took_ns = send_for(udp_socket(NULL), &to, segment, seconds);
    uint64_t good = 0;
    usleep(100000); /* for what is still in the server's socket */
    if (write(control, "", 1) != 1 || recv(control, &good, sizeof(good), MSG_WAITALL) < 8)
        bench_die("the server has gone");
    printf("{\"bytes_per_s\": %.0f}\n", (double)good * 1e9 / (double)took_ns);
}

int main(int argc, char **argv)
{
    const uint32_t segment = argc > 3 ? (uint32_t)atoi(argv[2]) : 0;
    if ((argc != 4 && argc != 5) || segment <= CRC_BYTES || segment > RUN_BYTES)
        bench_die("usage: udp_stream PORT SEGMENT_BYTES SECONDS [ADDRESS]");
    if (argc == 4)
        stream_serve((uint16_t)atoi(argv[1]), segment);
    else
        stream_ask(argv[4], (uint16_t)atoi(argv[1]), segment, atof(argv[3]));
    return 0;
}
