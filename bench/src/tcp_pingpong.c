/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Latency of TCP with busy polling: messages of one size there and back, with sockets that do not
 * block and receives in a loop, so nobody sleeps. The client prints one JSON object: half of a
 * round trip, on average and by median.
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

static void pingpong_receive(int fd, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = recv(fd, buffer + done, bytes - done, 0);
        if (got > 0)
            done += (size_t)got;
        else if (got == 0 || errno != EAGAIN)
            bench_die("the other side has gone");
    }
}

static void pingpong_transmit(int fd, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t put = send(fd, buffer + done, bytes - done, MSG_NOSIGNAL);
        if (put > 0)
            done += (size_t)put;
        else if (errno != EAGAIN)
            bench_die("the other side has gone");
    }
}

static int pingpong_compare_times(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void print_times(uint32_t *times_ns, unsigned long count, uint64_t all_ns)
{
    qsort(times_ns, count, sizeof(*times_ns), pingpong_compare_times);
    printf("{\"one_way_ns\": %.1f, \"median_ns\": %.1f}\n", (double)all_ns / 2 / (double)count,
           (double)times_ns[count / 2] / 2);
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
    uint32_t *times_ns = calloc(count, sizeof(*times_ns));
    uint64_t start_ns = 0, last_ns = 0;
    if (!times_ns)
        bench_die("%s", strerror(errno));
    for (unsigned long i = 0; i < count + WARM_UP; i++) {
        if (i == WARM_UP)
            start_ns = last_ns = bench_now_ns();
        if (is_client)
            pingpong_transmit(fd, bytes);
        pingpong_receive(fd, bytes);
        if (!is_client)
            pingpong_transmit(fd, bytes);
        if (i >= WARM_UP) {
            const uint64_t now_ns = bench_now_ns();
            times_ns[i - WARM_UP] = (uint32_t)(now_ns - last_ns);
            last_ns = now_ns;
        }
    }
    if (is_client)
        print_times(times_ns, count, last_ns - start_ns);
    free(times_ns);
    return 0;
}
