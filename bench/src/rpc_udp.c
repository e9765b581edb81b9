/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The same datagrams that RoCEv2 needs, by bare UDP sockets, each with a CRC that the sender makes
 * and the receiver checks: the floor of any protocol on these sockets. Nothing is sent again: what
 * is lost ends the run.
 *
 * Two ways: each datagram in a message of the kernel, or as many as the kernel takes in one
 * (UDP_SEGMENT, UDP_GRO), all short messages in its last datagram.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "endpoint.h"
#include "rpc.h"
#include "wire/icrc.h"

#define HEADER_BYTES 28u /* BTH and RETH; the CRC comes on top */
#define CRC_BYTES 4u
#define PACKET_BYTES 4096u /* of data, at most */
#define ROOM_BYTES (PACKET_BYTES + HEADER_BYTES + CRC_BYTES + RPC_REQUEST_BYTES)
#define BATCH 64
#define SOCKET_BYTES (8 << 20)
#define GIVE_UP_NS 5000000000u
#define SHARED_BYTES 65472u /* of a message that datagrams share */

enum { IS_DATA, IS_MESSAGE };

struct head {
    uint32_t kind, slot;
};

static struct {
    struct rpc_options options;
    int fd, control;
    uint8_t rooms[BATCH][ROOM_BYTES], out[BATCH][ROOM_BYTES];
    struct iovec out_pieces[BATCH];
    struct mmsghdr outgoing[BATCH];
    uint32_t queued;
    bool shares; /* the second way */
    uint8_t shared[SHARED_BYTES];
    uint32_t shared_bytes, datagrams;                              /* what is in it */
    uint32_t waiting[RPC_DEPTH_MAX], waiting_count, message_bytes; /* short ones that follow it */
} self;

static void udp_open(const struct rpc_options *options, int control)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(options->port)}, to = own;
    socklen_t len = sizeof(to);
    const int room = SOCKET_BYTES;
    char ready = 1;

    self.options = *options;
    self.control = control;
    self.fd = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(self.fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
    setsockopt(self.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    if (self.fd < 0 || bind(self.fd, (struct sockaddr *)&own, sizeof(own)) ||
        getpeername(control, (struct sockaddr *)&to, &len))
        bench_die("no UDP socket: %s", strerror(errno));
    to.sin_port = own.sin_port;
    if (connect(self.fd, (struct sockaddr *)&to, sizeof(to)))
        bench_die("connect: %s", strerror(errno));
    bench_send(control, &ready, 1);
    if (!bench_receive(control, &ready, 1))
        bench_die("the other side is gone");
}

static void open_sharing(const struct rpc_options *options, int control)
{
    const int one = 1;

    udp_open(options, control);
    self.shares = true;
    if (setsockopt(self.fd, IPPROTO_UDP, UDP_GRO, &one, sizeof(one)))
        bench_die("UDP_GRO: %s", strerror(errno));
}

static void udp_close(void)
{
}

static void flush_shared(void);

static void udp_flush(void)
{
    if (self.shares)
        flush_shared();
    for (uint32_t done = 0; done < self.queued;) {
        int sent = sendmmsg(self.fd, self.outgoing + done, self.queued - done, 0);

        if (sent < 0)
            bench_die("sendmmsg: %s", strerror(errno));
        done += (uint32_t)sent;
    }
    self.queued = 0;
}

/* The payload is there already. Returns the datagram's length. */
static uint32_t seal_datagram(uint8_t *at, uint32_t kind, uint32_t slot, uint32_t payload_bytes)
{
    const uint32_t bytes = HEADER_BYTES + payload_bytes;
    const struct head head = {kind, slot};
    uint32_t crc;

    memcpy(at, &head, sizeof(head));
    crc = sw_icrc_add(0, at, bytes);
    memcpy(at + bytes, &crc, CRC_BYTES);
    return bytes + CRC_BYTES;
}

/* All datagrams have the length of the first; the last may be shorter. */
static void udp_send_shared(void)
{
    _Alignas(8) uint8_t control[CMSG_SPACE(sizeof(uint16_t))] = {0};
    struct iovec piece = {self.shared, self.shared_bytes};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *segment = CMSG_FIRSTHDR(&message);
    const uint16_t bytes = HEADER_BYTES + PACKET_BYTES + CRC_BYTES;

    segment->cmsg_level = IPPROTO_UDP;
    segment->cmsg_type = UDP_SEGMENT;
    segment->cmsg_len = CMSG_LEN(sizeof(bytes));
    memcpy(CMSG_DATA(segment), &bytes, sizeof(bytes));
    if (self.datagrams < 2)
        message.msg_controllen = 0;
    if (self.datagrams && sendmsg(self.fd, &message, 0) < 0)
        bench_die("sendmsg: %s", strerror(errno));
    self.shared_bytes = self.datagrams = 0;
}

static void flush_shared(void)
{
    const uint32_t payload_bytes = self.waiting_count * self.message_bytes;
    uint8_t *at;

    if (self.shared_bytes + HEADER_BYTES + payload_bytes + CRC_BYTES > SHARED_BYTES)
        udp_send_shared();
    at = self.shared + self.shared_bytes;
    for (uint32_t i = 0; i < self.waiting_count; i++)
        memcpy(at + HEADER_BYTES + (size_t)i * self.message_bytes, &self.waiting[i],
               sizeof(self.waiting[0]));
    if (self.waiting_count) {
        self.shared_bytes += seal_datagram(at, IS_MESSAGE, self.message_bytes, payload_bytes);
        self.datagrams++;
    }
    self.waiting_count = 0;
    udp_send_shared();
}

static void share_message(uint32_t kind, uint32_t slot, uint32_t payload_bytes)
{
    static const uint8_t data[PACKET_BYTES] = {1};
    uint8_t *at;

    if (kind == IS_MESSAGE) {
        self.message_bytes = payload_bytes;
        self.waiting[self.waiting_count++] = slot;
        return;
    }
    if (self.shared_bytes + ROOM_BYTES > SHARED_BYTES)
        flush_shared();
    at = self.shared + self.shared_bytes;
    memcpy(at + HEADER_BYTES, data, payload_bytes);
    self.shared_bytes += seal_datagram(at, kind, slot, payload_bytes);
    self.datagrams++;
}

static void udp_put(uint32_t kind, uint32_t slot, uint32_t payload_bytes)
{
    uint8_t *at = self.out[self.queued];
    uint32_t bytes;

    if (self.shares) {
        share_message(kind, slot, payload_bytes);
        return;
    }
    bytes = seal_datagram(at, kind, slot, payload_bytes);
    self.out_pieces[self.queued] = (struct iovec){at, bytes};
    self.outgoing[self.queued].msg_hdr =
        (struct msghdr){.msg_iov = &self.out_pieces[self.queued], .msg_iovlen = 1};
    if (++self.queued == BATCH)
        udp_flush();
}

static void put_data(uint32_t slot)
{
    uint32_t left = self.options.data_bytes;

    for (; left > PACKET_BYTES; left -= PACKET_BYTES)
        udp_put(IS_DATA, slot, PACKET_BYTES);
    udp_put(IS_DATA, slot, left);
}

/* Returns how many slots it names. */
static uint32_t look_at(const uint8_t *datagram, uint32_t len_bytes, uint32_t *slots)
{
    const uint32_t bytes = len_bytes - CRC_BYTES;
    uint32_t found = 0, crc;
    struct head head;

    memcpy(&head, datagram, sizeof(head));
    memcpy(&crc, datagram + bytes, CRC_BYTES);
    if (sw_icrc_add(0, datagram, bytes) != crc || head.kind != IS_MESSAGE)
        return 0;
    if (!self.shares) {
        slots[0] = head.slot;
        return 1;
    }
    for (uint32_t at = HEADER_BYTES; at < bytes && found < RPC_DEPTH_MAX; at += head.slot)
        memcpy(&slots[found++], datagram + at, sizeof(slots[0]));
    return found;
}

/* Whether anything has come; *found: how many slots it names. */
static bool receive_shared(uint32_t *slots, uint32_t *found)
{
    static uint8_t room[1 << 16];
    _Alignas(8) uint8_t control[CMSG_SPACE(sizeof(int))];
    struct iovec piece = {room, sizeof(room)};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    const ssize_t got = recvmsg(self.fd, &message, MSG_DONTWAIT);
    const struct cmsghdr *head = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    int step = (int)got;

    if (head && head->cmsg_level == IPPROTO_UDP && head->cmsg_type == UDP_GRO)
        memcpy(&step, CMSG_DATA(head), sizeof(step));
    for (ssize_t at = 0; at < got; at += step)
        *found += look_at(room + at, (uint32_t)(got - at < step ? got - at : step), slots + *found);
    return got > 0;
}

static bool receive_each(uint32_t *slots, uint32_t *found)
{
    struct iovec pieces[BATCH];
    struct mmsghdr messages[BATCH];

    for (int i = 0; i < BATCH; i++) {
        pieces[i] = (struct iovec){self.rooms[i], ROOM_BYTES};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &pieces[i], .msg_iovlen = 1};
    }
    const int got = recvmmsg(self.fd, messages, BATCH, MSG_DONTWAIT, NULL);
    for (int i = 0; i < got; i++)
        *found += look_at(self.rooms[i], messages[i].msg_len, slots + *found);
    return got > 0;
}

/* The slots of the messages that have come. 0: the other side has gone. */
static uint32_t udp_get(uint32_t slots[RPC_DEPTH_MAX])
{
    const uint64_t end_ns = bench_now_ns() + GIVE_UP_NS;
    uint32_t found = 0;

    while (!found) {
        if (self.shares ? receive_shared(slots, &found) : receive_each(slots, &found))
            continue;
        struct pollfd ready[] = {{.fd = self.fd, .events = POLLIN},
                                 {.fd = self.control, .events = POLLIN}};
        if (self.options.sleeps && poll(ready, 2, 5000) > 0 && ready[1].revents)
            return 0;
        if (bench_now_ns() > end_ns || bench_has_closed(self.control))
            return 0;
    }
    return found;
}

static void udp_ask(const uint32_t *slots, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (self.options.is_write)
            put_data(slots[i]);
        udp_put(IS_MESSAGE, slots[i], RPC_REQUEST_BYTES);
    }
    udp_flush();
}

static uint32_t udp_await(uint32_t slots[RPC_DEPTH_MAX])
{
    uint32_t found = udp_get(slots);

    if (!found)
        bench_die("a datagram was lost, or the other side is gone");
    return found;
}

static void udp_serve(void)
{
    uint32_t slots[RPC_DEPTH_MAX], count;

    while ((count = udp_get(slots))) {
        for (uint32_t i = 0; i < count; i++) {
            if (!self.options.is_write)
                put_data(slots[i]);
            udp_put(IS_MESSAGE, slots[i], RPC_ANSWER_BYTES);
        }
        udp_flush();
    }
}

const struct rpc_way rpc_udp = {"udp", udp_open, udp_ask, udp_await, udp_serve, udp_close};
const struct rpc_way rpc_udp_shared = {"udp-shared", open_sharing, udp_ask,
                                       udp_await,    udp_serve,    udp_close};
