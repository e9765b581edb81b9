/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The same datagrams that RoCEv2 needs, by bare UDP sockets, each with a CRC that the sender makes
 * and the receiver checks: the floor of any protocol on these sockets. Nothing is sent again: what
 * is lost ends the run.
 */
#include <arpa/inet.h>
#include <errno.h>
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
} self;

static void open_way(const struct rpc_options *options, int control)
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

static void close_way(void)
{
}

static void flush(void)
{
    for (uint32_t done = 0; done < self.queued;) {
        int sent = sendmmsg(self.fd, self.outgoing + done, self.queued - done, 0);

        if (sent < 0)
            bench_die("sendmmsg: %s", strerror(errno));
        done += (uint32_t)sent;
    }
    self.queued = 0;
}

static void put(uint32_t kind, uint32_t slot, uint32_t payload_bytes)
{
    uint8_t *at = self.out[self.queued];
    const uint32_t bytes = HEADER_BYTES + payload_bytes;
    const struct head head = {kind, slot};
    uint32_t crc;

    memcpy(at, &head, sizeof(head));
    crc = sw_icrc_add(0, at, bytes);
    memcpy(at + bytes, &crc, CRC_BYTES);
    self.out_pieces[self.queued] = (struct iovec){at, bytes + CRC_BYTES};
    self.outgoing[self.queued].msg_hdr =
        (struct msghdr){.msg_iov = &self.out_pieces[self.queued], .msg_iovlen = 1};
    if (++self.queued == BATCH)
        flush();
}

static void put_data(uint32_t slot)
{
    uint32_t left = self.options.data_bytes;

    for (; left > PACKET_BYTES; left -= PACKET_BYTES)
        put(IS_DATA, slot, PACKET_BYTES);
    put(IS_DATA, slot, left);
}

/* The slots of the messages that have come. 0: the other side has gone. */
static uint32_t get(uint32_t slots[RPC_DEPTH_MAX])
{
    const uint64_t end_ns = bench_now_ns() + GIVE_UP_NS;
    struct iovec pieces[BATCH];
    struct mmsghdr messages[BATCH];
    uint32_t found = 0;

    while (!found) {
        for (int i = 0; i < BATCH; i++) {
            pieces[i] = (struct iovec){self.rooms[i], ROOM_BYTES};
            messages[i].msg_hdr = (struct msghdr){.msg_iov = &pieces[i], .msg_iovlen = 1};
        }
        const int got = recvmmsg(self.fd, messages, BATCH, MSG_DONTWAIT, NULL);
        for (int i = 0; i < got; i++) {
            const uint32_t bytes = messages[i].msg_len - CRC_BYTES;
            struct head head;
            uint32_t crc;

            memcpy(&head, self.rooms[i], sizeof(head));
            memcpy(&crc, self.rooms[i] + bytes, CRC_BYTES);
            if (sw_icrc_add(0, self.rooms[i], bytes) == crc && head.kind == IS_MESSAGE)
                slots[found++] = head.slot;
        }
        if (got > 0)
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

static void ask(const uint32_t *slots, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (self.options.is_write)
            put_data(slots[i]);
        put(IS_MESSAGE, slots[i], RPC_REQUEST_BYTES);
    }
    flush();
}

static uint32_t await(uint32_t slots[RPC_DEPTH_MAX])
{
    uint32_t found = get(slots);

    if (!found)
        bench_die("a datagram was lost, or the other side is gone");
    return found;
}

static void serve(void)
{
    uint32_t slots[RPC_DEPTH_MAX], count;

    while ((count = get(slots))) {
        for (uint32_t i = 0; i < count; i++) {
            if (!self.options.is_write)
                put_data(slots[i]);
            put(IS_MESSAGE, slots[i], RPC_ANSWER_BYTES);
        }
        flush();
    }
}

const struct rpc_way rpc_udp = {"udp", open_way, ask, await, serve, close_way};
