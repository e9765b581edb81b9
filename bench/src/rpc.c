/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests and answers per second, as a storage target and its host exchange them. Two processes,
 * started apart; the one with an address asks, and prints one JSON object.
 */
#include "rpc.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "endpoint.h"
#include "options.h"

static const struct rpc_way *const ways[] = {&rpc_verbs, &rpc_tcp, &rpc_udp, &rpc_udp_shared};

static __attribute__((noreturn)) void rpc_usage(void)
{
    bench_die(
        "usage: rpc --way verbs|tcp|udp|udp-shared --port N [--device NAME] [--depth 1..%u] "
        "[--data BYTES] [--span BYTES] [--write] [--sleep] [--count N] [ADDRESS OF THE TARGET]",
        RPC_DEPTH_MAX);
}

static void rpc_parse(int argc, char **argv, struct rpc_options *options)
{
    const struct bench_option table[] = {
        BENCH_TEXT_OPTION("way", 'y', options->way),
        BENCH_TEXT_OPTION("device", 'd', options->device),
        BENCH_NUMBER_OPTION("port", 'p', options->port),
        BENCH_NUMBER_OPTION("depth", 'q', options->depth),
        BENCH_NUMBER_OPTION("data", 's', options->data_bytes),
        BENCH_NUMBER_OPTION("span", 'a', options->span_bytes),
        BENCH_FLAG_OPTION("write", 'w', options->is_write),
        BENCH_FLAG_OPTION("sleep", 'e', options->sleeps),
        BENCH_NUMBER_OPTION("count", 'n', options->count),
    };
    if (!bench_parse_options(argc, argv, table, sizeof(table) / sizeof(table[0])))
        rpc_usage();
    options->address = argv[optind];
    if (!options->port || !options->way || !options->depth || options->depth > RPC_DEPTH_MAX ||
        !options->count || !options->data_bytes ||
        (options->span_bytes && options->span_bytes < options->data_bytes))
        rpc_usage();
}

static const struct rpc_way *rpc_find_way(const char *name)
{
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (!strcmp(ways[i]->name, name))
            return ways[i];
    rpc_usage();
}

static void rpc_run(const struct rpc_way *way, uint32_t depth, unsigned long count)
{
    uint32_t slots[RPC_DEPTH_MAX] = {0};
    unsigned long asked = 0, answered = 0;

    for (; asked < depth && asked < count; asked++)
        slots[asked] = (uint32_t)asked;
    way->ask(slots, (uint32_t)asked);
    while (answered < count) {
        uint32_t got = way->await(slots), again = got;

        answered += got;
        if (again > count - asked)
            again = (uint32_t)(count - asked);
        if (again)
            way->ask(slots, again);
        asked += again;
    }
}

static void rpc_measure(const struct rpc_way *way, const struct rpc_options *options)
{
    uint64_t started_ns;
    double seconds;

    rpc_run(way, options->depth, options->count / 10 + options->depth);
    started_ns = bench_now_ns();
    rpc_run(way, options->depth, options->count);
    seconds = (double)(bench_now_ns() - started_ns) / 1e9;
    printf("{\"way\": \"%s\", \"depth\": %u, \"data_bytes\": %u, \"requests_per_s\": %.1f, "
           "\"bytes_per_s\": %.0f}\n",
           way->name, options->depth, options->data_bytes, (double)options->count / seconds,
           (double)options->count * options->data_bytes / seconds);
}

int main(int argc, char **argv)
{
    struct rpc_options options = {.depth = 1, .data_bytes = 4096, .count = 20000};
    const struct rpc_way *way;
    int control;

    rpc_parse(argc, argv, &options);
    way = rpc_find_way(options.way);
    control =
        options.address ? bench_connect(options.address, options.port) : bench_listen(options.port);
    way->open(&options, control);
    if (options.address)
        rpc_measure(way, &options);
    else
        way->serve();
    close(control);
    way->close();
    return 0;
}
