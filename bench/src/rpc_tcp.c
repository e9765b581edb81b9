/* SPDX-License-Identifier: BSD-2-Clause */
/* The same over one TCP connection: what is there is received together and answered together. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "endpoint.h"
#include "rpc.h"

#define ROOM_BYTES (4u << 20)

static struct {
    struct rpc_options options;
    int fd;
    uint8_t *room, *data; /* received and not looked at yet; what is sent as data */
    size_t from, to;
} self;

static void tcp_open(const struct rpc_options *options, int control)
{
    const int one = 1;

    self.options = *options;
    self.fd = control;
    self.room = malloc(ROOM_BYTES);
    self.data = calloc(1, options->data_bytes);
    if (!self.room || !self.data)
        bench_die("no memory");
    memset(self.room, 1, ROOM_BYTES);
    if (setsockopt(control, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) ||
        fcntl(control, F_SETFL, O_NONBLOCK))
        bench_die("%s", strerror(errno));
}

static void tcp_close(void)
{
    free(self.room);
    free(self.data);
}

static void tcp_wait_for(short events)
{
    struct pollfd ready = {.fd = self.fd, .events = events};

    if (self.options.sleeps)
        poll(&ready, 1, -1);
}

static void tcp_put(struct iovec *pieces, int count)
{
    while (count) {
        struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)count};
        ssize_t sent = sendmsg(self.fd, &message, MSG_NOSIGNAL);

        if (sent < 0 && errno != EAGAIN)
            bench_die("the other side is gone");
        if (sent < 0)
            tcp_wait_for(POLLOUT);
        for (; count && sent >= (ssize_t)pieces->iov_len; pieces++, count--)
            sent -= (ssize_t)pieces->iov_len;
        if (count && sent > 0) {
            pieces->iov_base = (uint8_t *)pieces->iov_base + sent;
            pieces->iov_len -= (size_t)sent;
        }
    }
}

/* Messages of `bytes` with or without data behind each, one for each slot. */
static void put_all(const uint32_t *slots, uint32_t count, uint32_t bytes, bool with_data)
{
    static uint8_t heads[RPC_DEPTH_MAX][RPC_REQUEST_BYTES];
    struct iovec pieces[2 * RPC_DEPTH_MAX];
    int used = 0;

    for (uint32_t i = 0; i < count; i++) {
        memcpy(heads[i], &slots[i], sizeof(slots[i]));
        pieces[used++] = (struct iovec){heads[i], bytes};
        if (with_data)
            pieces[used++] = (struct iovec){self.data, self.options.data_bytes};
    }
    tcp_put(pieces, used);
}

/* The slots of whole messages of that length that have come. 0: the other side has gone. */
static uint32_t tcp_get(uint32_t slots[RPC_DEPTH_MAX], size_t bytes)
{
    uint32_t found = 0;

    for (;;) {
        for (; self.to - self.from >= bytes && found < RPC_DEPTH_MAX; self.from += bytes)
            memcpy(&slots[found++], self.room + self.from, sizeof(slots[0]));
        if (found)
            return found;
        memmove(self.room, self.room + self.from, self.to - self.from);
        self.to -= self.from;
        self.from = 0;
        ssize_t got = recv(self.fd, self.room + self.to, ROOM_BYTES - self.to, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            return 0;
        if (got < 0)
            tcp_wait_for(POLLIN);
        self.to += got > 0 ? (size_t)got : 0;
    }
}

static void tcp_ask(const uint32_t *slots, uint32_t count)
{
    put_all(slots, count, RPC_REQUEST_BYTES, self.options.is_write);
}

static uint32_t tcp_await(uint32_t slots[RPC_DEPTH_MAX])
{
    const uint32_t data_bytes = self.options.is_write ? 0 : self.options.data_bytes;
    uint32_t found = tcp_get(slots, RPC_ANSWER_BYTES + data_bytes);

    if (!found)
        bench_die("the other side is gone");
    return found;
}

static void tcp_serve(void)
{
    const uint32_t data_bytes = self.options.is_write ? self.options.data_bytes : 0;
    uint32_t slots[RPC_DEPTH_MAX], count;

    while ((count = tcp_get(slots, RPC_REQUEST_BYTES + data_bytes)))
        put_all(slots, count, RPC_ANSWER_BYTES, !self.options.is_write);
}

const struct rpc_way rpc_tcp = {"tcp", tcp_open, tcp_ask, tcp_await, tcp_serve, tcp_close};
