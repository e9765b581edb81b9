/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How fast RDMA READs bring memory that no cache holds into memory that no cache holds, each byte
 * once: what a snapshot in a peer's memory can come back with at most. (ib_read_bw reads the same
 * MiB again and again, out of the cache.) usage: fresh_read BYTES. Prints one JSON object.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "endpoint.h"

enum { READ_BYTES = 256 << 10, DEPTH = 16 }; /* as snapshots are read */

static void post_read(struct bench_endpoint *endpoint, uint8_t *memory, size_t at)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)memory + at, .length = READ_BYTES, .lkey = endpoint->mr->lkey};
    struct ibv_send_wr *bad,
        wr = {.opcode = IBV_WR_RDMA_READ,
              .send_flags = IBV_SEND_SIGNALED,
              .sg_list = &sge,
              .num_sge = 1,
              .wr.rdma = {.remote_addr = endpoint->remote_addr + at, .rkey = endpoint->remote_key}};
    if (ibv_post_send(endpoint->lanes[0].qp, &wr, &bad))
        bench_die("a READ is refused");
}

static void read_fresh(struct bench_endpoint *endpoint, uint8_t *memory, size_t bytes)
{
    size_t posted = 0, done = 0;
    struct timespec before, after;
    const uint64_t begun_ns = bench_now_ns();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    while (done < bytes) {
        for (; posted < bytes && posted < done + (size_t)DEPTH * READ_BYTES; posted += READ_BYTES)
            post_read(endpoint, memory, posted);
        bench_lane_wait(&endpoint->lanes[0], 1);
        done += READ_BYTES;
    }
    const double took_s = (double)(bench_now_ns() - begun_ns) * 1e-9;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const double cpu_s =
        (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) * 1e-9;
    printf("{\"bandwidth\": %.0f, \"by_cpu\": %.0f}\n", (double)bytes / took_s,
           (double)bytes / cpu_s);
}

int main(int argc, char **argv)
{
    static struct bench_endpoint endpoint;
    const struct bench_shape shape = {.lanes = 1, .depth = DEPTH, .largest_mtu = true};
    const size_t bytes = argc == 2 ? strtoull(argv[1], NULL, 10) / READ_BYTES * READ_BYTES : 0;
    char word = 0;
    pid_t peer;
    if (!bytes)
        bench_die("usage: fresh_read BYTES");
    const int socket = bench_pair(&peer);
    /* The target's has no private pages, as that of a server has none. */
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                           MAP_ANONYMOUS | (peer ? MAP_PRIVATE : MAP_SHARED), -1, 0);
    if (memory == MAP_FAILED)
        bench_die("there is no memory");
    memset(memory, peer ? 0 : 7, bytes);
    bench_pin(peer ? 0 : 1);
    bench_endpoint_join(&endpoint, NULL, &shape, memory, bytes, socket);
    if (peer) {
        read_fresh(&endpoint, memory, bytes);
        if (memory[0] != 7 || memory[bytes - 1] != 7)
            bench_die("what was read is not what is there");
        bench_send(socket, &word, 1);
        waitpid(peer, NULL, 0);
    } else {
        bench_receive(socket, &word, 1);
    }
    bench_endpoint_close(&endpoint);
    return 0;
}
