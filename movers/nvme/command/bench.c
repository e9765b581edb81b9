/* SPDX-License-Identifier: BSD-2-Clause */
/* `bench`: latency and throughput by block size and depth, and verification. Names as fio's. */
#include "nvme/command/bench.h"

#include "common/command/bench.h"

#include <stdlib.h>
#include <string.h>

enum {
    KEY_RW = 0x3000,
    KEY_MIX,
    KEY_BS,
    KEY_DEPTH,
    KEY_RUNTIME,
    KEY_RAMP,
    KEY_SIZE,
    KEY_OFFSET,
    KEY_JOBS,
    KEY_SLEEP,
    KEY_VERIFY,
    KEY_LOOPS,
    KEY_DESTROY,
};

static const struct argp_option options[] = {
    {"rw", KEY_RW, "KIND", 0, "read, write, rw, randread, randwrite or randrw (randread)", 0},
    {"rwmixread", KEY_MIX, "PERCENT", 0, "Share of reads where both are done (50)", 0},
    {"bs", KEY_BS, "BYTES", 0, "Bytes of a request (4k); several with commas", 0},
    {"iodepth", KEY_DEPTH, "N", 0, "Requests in flight per thread (1); several with commas", 0},
    {"runtime", KEY_RUNTIME, "S", 0, "Seconds of each measurement (2)", 0},
    {"ramp_time", KEY_RAMP, "S", 0, "Seconds before it (0.2)", 0},
    {"size", KEY_SIZE, "BYTES", 0, "The part of the namespace that is used (all; verify: 64m)", 0},
    {"offset", KEY_OFFSET, "BYTES", 0, "Where it begins (0)", 0},
    {"numjobs", KEY_JOBS, "N", 0, "Threads, each with a queue (1)", 0},
    {"sleep", KEY_SLEEP, NULL, 0, "Threads sleep until something comes, instead of polling", 0},
    {"verify", KEY_VERIFY, NULL, 0, "Write blocks with checksum and sequence, read them back", 0},
    {"loops", KEY_LOOPS, "N", 0, "Rounds of verification, unless --runtime is given (2)", 0},
    {"destroy-data", KEY_DESTROY, NULL, 0, "What is there may be overwritten", 0},
    {0},
};

struct arguments {
    struct nv_bench bench;
    bool may_destroy;
};

static uint32_t bench_parse_list(struct argp_state *state, char *text, uint64_t max, uint64_t *out)
{
    uint32_t count = 0;
    for (char *rest = text, *item; (item = strsep(&rest, ","));) {
        if (count == NV_SIZES_MAX || !nv_parse_size(item, max, &out[count]) || !out[count])
            argp_error(state, "\"%s\" is not one of up to %d numbers up to %llu", item,
                       NV_SIZES_MAX, (unsigned long long)max);
        count++;
    }
    return count;
}

static void parse_rw(struct argp_state *state, struct nv_bench *bench, const char *text)
{
    const char *kind = text;
    bench->rw = text;
    bench->is_random = !strncmp(kind, "rand", 4);
    kind += bench->is_random ? 4 : 0;
    if (!strcmp(kind, "read"))
        bench->read_percent = 100;
    else if (!strcmp(kind, "write"))
        bench->read_percent = 0;
    else if (!strcmp(kind, "rw"))
        bench->read_percent = 50;
    else
        argp_error(state, "\"%s\" is none of read, write, rw, randread, randwrite, randrw", text);
}

static uint64_t parse_one(struct argp_state *state, const char *text, uint64_t max)
{
    uint64_t value = 0;
    if (!nv_parse_size(text, max, &value))
        argp_error(state, "\"%s\" is not a number up to %llu", text, (unsigned long long)max);
    return value;
}

static error_t parse_span(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;
    struct nv_bench *bench = &a->bench;
    switch (key) {
    case KEY_SIZE:
        bench->span_bytes = parse_one(state, arg, INT64_MAX);
        return 0;
    case KEY_OFFSET:
        bench->offset_bytes = parse_one(state, arg, INT64_MAX);
        return 0;
    case KEY_JOBS:
        bench->threads = (uint32_t)parse_one(state, arg, 64);
        return 0;
    case KEY_LOOPS:
        bench->loops = (uint32_t)parse_one(state, arg, 1000000);
        return 0;
    case KEY_DESTROY:
        a->may_destroy = true;
        return 0;
    case ARGP_KEY_END:
        if (!bench->threads)
            argp_error(state, "no thread is no bench: --numjobs");
        if ((bench->verifies || bench->read_percent < 100) && !a->may_destroy)
            argp_error(state, "this overwrites the namespace: say --destroy-data if you mean it");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t nvme_parse_bench(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;
    struct nv_bench *bench = &a->bench;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &bench->host;
        return 0;
    case KEY_RW:
        parse_rw(state, bench, arg);
        return 0;
    case KEY_MIX:
        bench->read_percent = (uint32_t)parse_one(state, arg, 100);
        return 0;
    case KEY_BS:
        bench->sizes_count = bench_parse_list(state, arg, 16 << 20, bench->sizes);
        return 0;
    case KEY_DEPTH:
        bench->depths_count = bench_parse_list(state, arg, 1023, bench->depths);
        return 0;
    case KEY_RUNTIME:
        bench->runtime_ms = mover_parse_seconds_ms(state, arg);
        bench->has_runtime = true;
        return 0;
    case KEY_RAMP:
        bench->ramp_ms = mover_parse_seconds_ms(state, arg);
        return 0;
    case KEY_SLEEP:
        bench->polls = false;
        return 0;
    case KEY_VERIFY:
        bench->verifies = true;
        return 0;
    default:
        return parse_span(key, arg, state);
    }
}

static int check_span(struct nv_bench *bench)
{
    enum { VERIFY_BYTES = 64 << 20 };
    const struct sw_nvme_namespace *ns = &bench->ns;
    const uint64_t all = ns->blocks * ns->block_bytes;
    struct sw_nvme_info info;
    sw_nvme_info_of(bench->host.controller, &info);
    if (bench->offset_bytes >= all || bench->offset_bytes % ns->block_bytes)
        return nv_fail(&bench->host, "offset %llu is behind the end, or inside a block of %u",
                       (unsigned long long)bench->offset_bytes, ns->block_bytes);
    const uint64_t room = all - bench->offset_bytes;
    if (!bench->span_bytes)
        bench->span_bytes = bench->verifies && room > VERIFY_BYTES ? VERIFY_BYTES : room;
    if (bench->span_bytes > room)
        return nv_fail(&bench->host, "--size is %llu bytes, and only %llu are there",
                       (unsigned long long)bench->span_bytes, (unsigned long long)room);
    for (uint32_t i = 0; i < bench->sizes_count; i++) {
        if (bench->sizes[i] % ns->block_bytes)
            return nv_fail(&bench->host, "--bs %llu is no multiple of a block of %u",
                           (unsigned long long)bench->sizes[i], ns->block_bytes);
        if (bench->sizes[i] > info.transfer_max_bytes)
            return nv_fail(&bench->host, "--bs %llu is more than the controller takes: %u",
                           (unsigned long long)bench->sizes[i], info.transfer_max_bytes);
    }
    if (info.nr_io_queues < bench->threads)
        return nv_fail(&bench->host, "%u threads want a queue each, and %u were granted",
                       bench->threads, info.nr_io_queues);
    return 0;
}

static double us_of(uint64_t ns)
{
    return (double)ns / 1e3;
}

static void bench_print_row(const struct nv_measure *m, unsigned kind)
{
    const struct mover_histogram *h = &m->latency[kind];
    if (!h->count)
        return;
    const double iops = m->seconds > 0 ? (double)h->count / m->seconds : 0;
    printf("%-5s %8u %6u %10.0f %10.1f %9.2f %9.2f %9.2f %9.2f %9.2f\n", kind ? "write" : "read",
           m->block_bytes, m->depth, iops, iops * m->block_bytes / 1e6,
           us_of(h->sum_ns) / (double)h->count, us_of(mover_histogram_at(h, 0.5)),
           us_of(mover_histogram_at(h, 0.99)), us_of(mover_histogram_at(h, 0.999)),
           us_of(h->max_ns));
}

static json_t *bench_row_json(const struct nv_measure *m, unsigned kind)
{
    return mover_bench_figures(&m->latency[kind], m->seconds, m->block_bytes);
}

static int run_rows(struct nv_bench *bench, json_t *rows)
{
    const bool is_table = bench->host.format == NV_NORMAL;
    int failed = 0;
    struct nv_measure *m = malloc(sizeof(*m));
    if (!m)
        return nv_fail(&bench->host, "no memory");
    if (is_table)
        printf("%-5s %8s %6s %10s %10s %9s %9s %9s %9s %9s\n", "", "bytes", "depth", "IOPS", "MB/s",
               "mean us", "p50 us", "p99 us", "p99.9 us", "max us");
    for (uint32_t i = 0; i < bench->sizes_count * bench->depths_count && !failed; i++) {
        memset(m, 0, sizeof(*m));
        m->block_bytes = (uint32_t)bench->sizes[i / bench->depths_count];
        m->depth = (uint32_t)bench->depths[i % bench->depths_count];
        failed = bench->verifies ? nv_bench_verify(bench, m) : nv_bench_measure(bench, m);
        if (is_table) {
            bench_print_row(m, 0);
            bench_print_row(m, 1);
            fflush(stdout);
        }
        json_array_append_new(
            rows, json_pack("{s:I, s:I, s:I, s:f, s:I, s:o, s:o, s:I}", "request_bytes",
                            (json_int_t)m->block_bytes, "iodepth", (json_int_t)m->depth, "numjobs",
                            (json_int_t)bench->threads, "seconds", m->seconds, "errors",
                            (json_int_t)m->errors, "read", bench_row_json(m, 0), "write",
                            bench_row_json(m, 1), "bs", (json_int_t)m->block_bytes));
    }
    free(m);
    return failed;
}

int nv_bench(int argc, char **argv)
{
    const struct argp_child children[] = {{&nv_host_argp, 0, "Connection:", 0}, {0}};
    const struct argp argp = {
        .options = options,
        .parser = nvme_parse_bench,
        .children = children,
        .doc = "Measures latency and throughput of a namespace, or verifies what it keeps.",
    };
    struct arguments a = {.bench = {.read_percent = 100,
                                    .is_random = true,
                                    .rw = "randread",
                                    .sizes = {4096},
                                    .sizes_count = 1,
                                    .depths = {1},
                                    .depths_count = 1,
                                    .threads = 1,
                                    .runtime_ms = 2000,
                                    .ramp_ms = 200,
                                    .loops = 2,
                                    .polls = true}};
    struct nv_bench *bench = &a.bench;
    nv_host_parse("bench", &argp, argc, argv, &bench->host);
    if (bench->host.options.nr_io_queues < bench->threads)
        bench->host.options.nr_io_queues = bench->threads;
    if (nv_host_connect(&bench->host))
        return 1;
    json_t *rows = json_array();
    int failed =
        nv_host_namespace(&bench->host, &bench->ns) || check_span(bench) || run_rows(bench, rows);
    if (bench->verifies && !failed && bench->host.format == NV_NORMAL)
        printf("verification: all blocks are as they were written\n");
    nv_host_close(&bench->host);
    if (bench->host.format == NV_NORMAL) {
        json_decref(rows);
        return failed;
    }
    return mover_print_json(json_pack("{s:s, s:b, s:b, s:b, s:o}", "rw", bench->rw, "polling",
                                      (int)bench->polls, "verify", (int)bench->verifies, "failed",
                                      failed, "rows", rows)) ||
           failed;
}
