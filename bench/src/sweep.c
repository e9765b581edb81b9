/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Latency of WRITE (ping-pong, half of the round trip, median) and bandwidth of WRITE and READ for
 * message sizes from 2 B to 8 MiB, in memory of a chosen kind. The target sleeps while bandwidth is
 * measured. Prints one JSON object.
 */
#include "buffer.h"
#include "endpoint.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define SIZE_MAX_BYTES ((size_t)8 << 20)
#define WINDOW 64 /* requests in flight */
#define BATCH 16  /* of which every 16th is signaled */
#define LATENCY_SAMPLES_MAX 20000
#define BYTES_PER_POINT ((size_t)1 << 30)
#define REQUESTS_PER_POINT 100000

struct side {
    struct bench_endpoint endpoint;
    struct bench_lane *lane;
    char *source; /* two halves of one region, at the same offsets on both sides */
    volatile char *sink;
    int socket;
};

/* What the initiator tells the target before each ping-pong. */
struct order {
    uint32_t size_bytes;
    uint32_t rounds;
};

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static void sweep_post(struct side *side, enum ibv_wr_opcode opcode, uint32_t size_bytes, int flags)
{
    bool inlined = opcode == IBV_WR_RDMA_WRITE && side->endpoint.inline_ok && size_bytes <= 64;
    struct ibv_sge sge = {
        .addr = (uintptr_t)side->source, .length = size_bytes, .lkey = side->endpoint.mr->lkey};
    struct ibv_send_wr *bad,
        wr = {.sg_list = &sge,
              .num_sge = 1,
              .opcode = opcode,
              .send_flags = (unsigned int)flags | (inlined ? IBV_SEND_INLINE : 0),
              .wr.rdma = {.remote_addr = side->endpoint.remote_addr + SIZE_MAX_BYTES,
                          .rkey = side->endpoint.remote_key}};
    int failed = ibv_post_send(side->lane->qp, &wr, &bad);

    if (failed)
        bench_die("ibv_post_send: %s", strerror(failed));
}

/* One round: the initiator writes the round's number behind the message, the target answers in
 * kind. */
static void ping_pong(struct side *side, const struct order *order, bool first, uint64_t *round_ns)
{
    volatile char *sink = &side->sink[order->size_bytes - 1];
    uint64_t before = bench_now_ns();

    for (uint32_t i = 0; i < order->rounds; i++) {
        char number = (char)(i + 2); /* never what the round before left */

        if (!first) {
            while (*sink != number)
                ;
        }
        side->source[order->size_bytes - 1] = number;
        sweep_post(side, IBV_WR_RDMA_WRITE, order->size_bytes, IBV_SEND_SIGNALED);
        bench_lane_wait(side->lane, 1);
        if (first) {
            uint64_t now;

            while (*sink != number)
                ;
            now = bench_now_ns();
            round_ns[i] = now - before;
            before = now;
        }
    }
}

static double measure_latency_us(struct side *side, uint32_t size_bytes)
{
    static uint64_t round_ns[LATENCY_SAMPLES_MAX];
    size_t rounds = BYTES_PER_POINT / 8 / size_bytes;
    struct order order = {.size_bytes = size_bytes};
    char ready;

    order.rounds = (uint32_t)(rounds > LATENCY_SAMPLES_MAX ? LATENCY_SAMPLES_MAX : rounds);
    side->sink[size_bytes - 1] = 0;
    bench_send(side->socket, &order, sizeof(order));
    if (!bench_receive(side->socket, &ready, 1))
        bench_die("the other side is gone");
    ping_pong(side, &order, true, round_ns);
    qsort(round_ns, order.rounds, sizeof(*round_ns), compare_u64);
    return (double)round_ns[order.rounds / 2] / 2e3;
}

static double measure_gbytes(struct side *side, enum ibv_wr_opcode opcode, uint32_t size_bytes)
{
    size_t batches = BYTES_PER_POINT / size_bytes / BATCH;
    size_t posted = 0, done = 0;
    uint64_t started;

    if (batches > REQUESTS_PER_POINT / BATCH)
        batches = REQUESTS_PER_POINT / BATCH;
    if (batches < 2)
        batches = 2;
    started = bench_now_ns();
    while (done < batches) {
        if (posted < batches && posted - done < WINDOW / BATCH) {
            for (int i = 1; i <= BATCH; i++)
                sweep_post(side, opcode, size_bytes, i == BATCH ? IBV_SEND_SIGNALED : 0);
            posted++;
        } else {
            bench_lane_wait(side->lane, 1);
            done++;
        }
    }
    return (double)(batches * BATCH * size_bytes) / (double)(bench_now_ns() - started);
}

static void sweep_lead(struct side *side, const char *kind_name)
{
    const char *comma = "";

    (void)measure_latency_us(side, 4096); /* first use of everything */
    printf("{\"buffer\": \"%s\", \"rows\": [", kind_name);
    for (uint32_t size = 2; size <= SIZE_MAX_BYTES; size *= 2) {
        double latency_us = measure_latency_us(side, size);
        double write_gbytes = measure_gbytes(side, IBV_WR_RDMA_WRITE, size);
        double read_gbytes = measure_gbytes(side, IBV_WR_RDMA_READ, size);

        printf(
            "%s\n  {\"size_bytes\": %u, \"write_latency_us\": %.4f, \"write_gbytes_per_s\": %.4f, "
            "\"read_gbytes_per_s\": %.4f}",
            comma, size, latency_us, write_gbytes, read_gbytes);
        comma = ",";
    }
    printf("]}\n");
}

static void sweep_follow(struct side *side)
{
    struct order order;
    char ready = 1;

    while (bench_receive(side->socket, &order, sizeof(order))) {
        side->sink[order.size_bytes - 1] = 0;
        bench_send(side->socket, &ready, 1);
        ping_pong(side, &order, false, NULL);
    }
}

static enum bench_buffer_kind parse_kind(const char *name)
{
    static const char *const names[] = {"malloc", "hugetlb", "thp"};

    for (int i = 0; i < 3; i++) {
        if (!strcmp(name, names[i]))
            return (enum bench_buffer_kind)i;
    }
    bench_die("unknown kind of memory '%s': malloc, hugetlb or thp", name);
}

int main(int argc, char **argv)
{
    static struct side side;
    const char *device = NULL, *kind_name = "malloc";
    int cpus[2] = {-1, -1};
    int letter;
    pid_t peer;
    char *memory;

    while ((letter = getopt(argc, argv, "b:d:c:")) != -1) {
        if (letter == 'b')
            kind_name = optarg;
        else if (letter == 'd')
            device = optarg;
        else if (letter != 'c' || sscanf(optarg, "%d,%d", &cpus[0], &cpus[1]) != 2)
            bench_die("usage: sweep [-b malloc|hugetlb|thp] [-c INITIATOR,TARGET] [-d DEVICE]");
    }
    side.socket = bench_pair(&peer);
    bench_pin(cpus[peer ? 0 : 1]);
    memory = bench_buffer_create(parse_kind(kind_name), 2 * SIZE_MAX_BYTES);
    if (!memory)
        bench_die("this machine has no %s memory free", kind_name);
    bench_endpoint_join(&side.endpoint, device, &(struct bench_shape){.lanes = 1}, memory,
                        2 * SIZE_MAX_BYTES, side.socket);
    side.lane = &side.endpoint.lanes[0];
    side.source = memory;
    side.sink = memory + SIZE_MAX_BYTES;
    if (peer) {
        sweep_lead(&side, kind_name);
        shutdown(side.socket, SHUT_RDWR);
        waitpid(peer, NULL, 0);
    } else {
        sweep_follow(&side);
    }
    bench_endpoint_close(&side.endpoint);
    return 0;
}
