/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Latency of TCP with busy polling: messages of one size there and back, with sockets that do not
 * block and receives in a loop, so nobody sleeps. The client prints one JSON object: half of a
 * round trip, on average.
 *
 * usage: tcp_pingpong PORT BYTES ITERATIONS [ADDRESS]     (with ADDRESS: the client)
 */
#include "endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define BYTES_MAX 65536u
#define WARM_UP 1000u

static char buffer[BYTES_MAX];

static void receive(int fd, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = recv(fd, buffer + done, bytes - done, 0);
        if (got > 0)
            done += (size_t)got;
        else if (got == 0 || errno != EAGAIN)
            bench_die("the other side has gone");
    }
}

static void transmit(int fd, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t put = send(fd, buffer + done, bytes - done, MSG_NOSIGNAL);
        if (put > 0)
            done += (size_t)put;
        else if (errno != EAGAIN)
            bench_die("the other side has gone");
    }
}

int main(int argc, char **argv)
{
    const size_t bytes = argc > 3 ? strtoul(argv[2], NULL, 10) : 0;
    const unsigned long count = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
    const bool is_client = argc == 5;
    const int one = 1;
    if (argc > 5 || bytes < 1 || bytes > BYTES_MAX || !count)
        bench_die("usage: tcp_pingpong PORT BYTES ITERATIONS [ADDRESS]");
    const uint16_t port = (uint16_t)atoi(argv[1]);
    const int fd = is_client ? bench_connect(argv[4], port) : bench_listen(port);
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) ||
        fcntl(fd, F_SETFL, O_NONBLOCK))
        bench_die("%s", strerror(errno));
    uint64_t start_ns = 0;
    for (unsigned long i = 0; i < count + WARM_UP; i++) {
        if (i == WARM_UP)
            start_ns = bench_now_ns();
        if (is_client)
            transmit(fd, bytes);
        receive(fd, bytes);
        if (!is_client)
            transmit(fd, bytes);
    }
    if (is_client)
        printf("{\"one_way_ns\": %.1f}\n", (double)(bench_now_ns() - start_ns) / 2 / (double)count);
    return 0;
}
