/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The floor under every latency of two processes on two cores: how long one cache line takes from a
 * store on one core to the load that sees it on the other (half of the round trip, median). Prints
 * one JSON object.
 */
#include "endpoint.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define GROUPS 1000
#define ROUNDS_PER_GROUP 100

struct lines {
    _Alignas(128) _Atomic uint32_t ping;
    _Alignas(128) _Atomic uint32_t pong;
};

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void bounce_await(_Atomic uint32_t *line, uint32_t value)
{
    while (atomic_load_explicit(line, memory_order_acquire) != value)
        ;
}

int main(int argc, char **argv)
{
    static double group_ns[GROUPS];
    int cpus[2] = {0, 1};
    struct lines *lines;
    uint32_t round = 0;
    pid_t peer;

    if (argc > 1 && sscanf(argv[1], "%d,%d", &cpus[0], &cpus[1]) != 2)
        bench_die("usage: line_bounce [CPU,CPU]");
    lines = mmap(NULL, sizeof(*lines), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (lines == MAP_FAILED)
        bench_die("no memory");
    (void)bench_pair(&peer);
    bench_pin(cpus[peer ? 0 : 1]);
    for (int group = 0; group < GROUPS; group++) {
        uint64_t started = bench_now_ns();

        for (int i = 0; i < ROUNDS_PER_GROUP; i++) {
            round++;
            if (!peer)
                bounce_await(&lines->ping, round);
            atomic_store_explicit(peer ? &lines->ping : &lines->pong, round, memory_order_release);
            if (peer)
                bounce_await(&lines->pong, round);
        }
        group_ns[group] = (double)(bench_now_ns() - started) / (2 * ROUNDS_PER_GROUP);
    }
    if (!peer)
        return 0;
    waitpid(peer, NULL, 0);
    qsort(group_ns, GROUPS, sizeof(*group_ns), compare_double);
    printf("{\"one_way_ns\": %.1f, \"p10_ns\": %.1f, \"p90_ns\": %.1f}\n", group_ns[GROUPS / 2],
           group_ns[GROUPS / 10], group_ns[GROUPS * 9 / 10]);
    return 0;
}
