/* SPDX-License-Identifier: BSD-2-Clause */
/* `bench`: latency and throughput by block size and depth, and verification. Names as fio's. */
#include "nvme/command/bench.h"

#include <stdlib.h>
#include <string.h>

#include "common/command/bench.h"
#include "common/command/table.h"

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

static void take_sizes(struct argp_state *state, void *place, char *text)
{
    struct nv_bench *bench = place;
    bench->sizes_count = bench_parse_list(state, text, 16 << 20, bench->sizes);
}

static void take_depths(struct argp_state *state, void *place, char *text)
{
    struct nv_bench *bench = place;
    bench->depths_count = bench_parse_list(state, text, 1023, bench->depths);
}

static void take_rw(struct argp_state *state, void *place, char *text)
{
    struct nv_bench *bench = place;
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

static void take_percent(struct argp_state *state, void *place, char *text)
{
    *(uint32_t *)place = (uint32_t)parse_one(state, text, 100);
}

static void take_jobs(struct argp_state *state, void *place, char *text)
{
    *(uint32_t *)place = (uint32_t)parse_one(state, text, 64);
}

static void take_loops(struct argp_state *state, void *place, char *text)
{
    *(uint32_t *)place = (uint32_t)parse_one(state, text, 1000000);
}

static void take_span(struct argp_state *state, void *place, char *text)
{
    *(uint64_t *)place = parse_one(state, text, INT64_MAX);
}

static void take_runtime(struct argp_state *state, void *place, char *text)
{
    struct nv_bench *bench = place;
    mover_take_time(state, &bench->runtime_ns, text);
    bench->has_runtime = true;
}

static void take_sleep(struct argp_state *state, void *place, char *text)
{
    struct nv_bench *bench = place;
    (void)state;
    (void)text;
    bench->polls = false;
}

static void bench_check(struct argp_state *state, void *arguments)
{
    const struct nv_bench *bench = arguments;
    if (!bench->threads)
        argp_error(state, "no thread is no bench: --numjobs");
    if ((bench->verifies || bench->read_percent < 100) && !bench->may_destroy)
        argp_error(state, "this overwrites the namespace: say --destroy-data if you mean it");
}

#define BENCH(member) offsetof(struct nv_bench, member)

static const struct mover_option options[] = {
    {"rw", 0, "KIND", 0, "read, write, rw, randread, randwrite or randrw (randread)", 0, take_rw,
     0},
    {"rwmixread", 0, "PERCENT", 0, "Share of reads where both are done (50)", 0, take_percent,
     BENCH(read_percent)},
    {"bs", 0, "BYTES", 0, "Bytes of a request (4k); several with commas", 0, take_sizes, 0},
    {"iodepth", 0, "N", 0, "Requests in flight per thread (1); several with commas", 0, take_depths,
     0},
    {"runtime", 0, "S", 0, "Seconds of each measurement (2)", 0, take_runtime, 0},
    {"ramp_time", 0, "S", 0, "Seconds before it (0.2)", 0, mover_take_time, BENCH(ramp_ns)},
    {"size", 0, "BYTES", 0, "The part of the namespace that is used (all; verify: 64m)", 0,
     take_span, BENCH(span_bytes)},
    {"offset", 0, "BYTES", 0, "Where it begins (0)", 0, take_span, BENCH(offset_bytes)},
    {"numjobs", 0, "N", 0, "Threads, each with a queue (1)", 0, take_jobs, BENCH(threads)},
    {"sleep", 0, NULL, 0, "Threads sleep until something comes, instead of polling", 0, take_sleep,
     0},
    {"verify", 0, NULL, 0, "Write blocks with checksum and sequence, read them back", 0,
     MOVER_TO(struct nv_bench, verifies)},
    {"loops", 0, "N", 0, "Rounds of verification, unless --runtime is given (2)", 0, take_loops,
     BENCH(loops)},
    {"destroy-data", 0, NULL, 0, "What is there may be overwritten", 0,
     MOVER_TO(struct nv_bench, may_destroy)},
    {0},
};

static const struct mover_column columns[] = {{"", NULL, .width = -5},
                                              {"bytes", "request_bytes", .width = 8},
                                              {"depth", "iodepth", .width = 6},
                                              {"IOPS", "iops", .width = 10},
                                              {"MB/s", "mb_per_s", .width = 10, .digits = 1},
                                              {"mean us", "mean_us", .width = 9, .digits = 2},
                                              {"p50 us", "p50_us", .width = 9, .digits = 2},
                                              {"p99 us", "p99_us", .width = 9, .digits = 2},
                                              {"p99.9 us", "p999_us", .width = 9, .digits = 2},
                                              {"max us", "max_us", .width = 9, .digits = 2},
                                              {0}};

static int check_span(struct nv_bench *bench)
{
    enum { VERIFY_BYTES = 64 << 20 };
    const struct sw_nvme_namespace *ns = &bench->ns;
    const uint64_t all = ns->blocks * ns->block_bytes;
    struct sw_nvme_info info;
    sw_nvme_info_of(bench->host.controller, &info);
    if (bench->offset_bytes >= all || bench->offset_bytes % ns->block_bytes)
        return mover_fail("offset %llu is behind the end, or inside a block of %u",
                          (unsigned long long)bench->offset_bytes, ns->block_bytes);
    const uint64_t room = all - bench->offset_bytes;
    if (!bench->span_bytes)
        bench->span_bytes = bench->verifies && room > VERIFY_BYTES ? VERIFY_BYTES : room;
    if (bench->span_bytes > room)
        return mover_fail("--size is %llu bytes, and only %llu are there",
                          (unsigned long long)bench->span_bytes, (unsigned long long)room);
    for (uint32_t i = 0; i < bench->sizes_count; i++) {
        if (bench->sizes[i] % ns->block_bytes)
            return mover_fail("--bs %llu is no multiple of a block of %u",
                              (unsigned long long)bench->sizes[i], ns->block_bytes);
        if (bench->sizes[i] > info.transfer_max_bytes)
            return mover_fail("--bs %llu is more than the controller takes: %u",
                              (unsigned long long)bench->sizes[i], info.transfer_max_bytes);
    }
    if (info.nr_io_queues < bench->threads)
        return mover_fail("%u threads want a queue each, and %u were granted", bench->threads,
                          info.nr_io_queues);
    return 0;
}

static json_t *figures_of(const struct nv_measure *m, unsigned kind)
{
    return mover_bench_figures(&m->latency[kind], m->seconds, m->block_bytes);
}

/* A row of JSON has reads and writes; of text, there is one for each. */
static void show_measure(const struct nv_bench *bench, struct mover_table *table,
                         const struct nv_measure *m)
{
    const json_int_t bytes = m->block_bytes, depth = m->depth;
    for (unsigned kind = 0; !table->is_json && kind < 2; kind++)
        if (m->latency[kind].count) {
            json_t *row = figures_of(m, kind);
            json_object_update_new(row,
                                   json_pack("{sI sI}", "request_bytes", bytes, "iodepth", depth));
            mover_table_add(table, kind ? "write" : "read", row);
        }
    if (table->is_json)
        mover_table_add(table, NULL,
                        json_pack("{s:I, s:I, s:I, s:f, s:I, s:o, s:o, s:I}", "request_bytes",
                                  bytes, "iodepth", depth, "numjobs", (json_int_t)bench->threads,
                                  "seconds", m->seconds, "errors", (json_int_t)m->errors, "read",
                                  figures_of(m, 0), "write", figures_of(m, 1), "bs", bytes));
}

static int run_rows(struct nv_bench *bench, struct mover_table *table)
{
    int failed = 0;
    struct nv_measure *m = malloc(sizeof(*m));
    if (!m)
        return mover_fail("no memory");
    for (uint32_t i = 0; i < bench->sizes_count * bench->depths_count && !failed; i++) {
        memset(m, 0, sizeof(*m));
        m->block_bytes = (uint32_t)bench->sizes[i / bench->depths_count];
        m->depth = (uint32_t)bench->depths[i % bench->depths_count];
        failed = bench->verifies ? nv_bench_verify(bench, m) : nv_bench_measure(bench, m);
        show_measure(bench, table, m);
    }
    free(m);
    return failed;
}

int nv_bench(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Measures latency and throughput of a namespace, or verifies what it keeps.",
        .own = {.rows = options, .check = bench_check},
        .shared = &nv_host_options_below};
    struct nv_bench bench = {.read_percent = 100,
                             .is_random = true,
                             .rw = "randread",
                             .sizes = {4096},
                             .sizes_count = 1,
                             .depths = {1},
                             .depths_count = 1,
                             .threads = 1,
                             .runtime_ns = 2000000000,
                             .ramp_ns = 200000000,
                             .loops = 2,
                             .polls = true};
    nv_host_parse(&usage, argc, argv, &bench);
    if (bench.host.options.nr_io_queues < bench.threads)
        bench.host.options.nr_io_queues = bench.threads;
    if (nv_host_connect(&bench.host))
        return 1;
    bool is_blank = false;
    struct mover_table table = {.is_json = bench.host.format != NV_NORMAL};
    int failed = nv_host_namespace(&bench.host, &bench.ns) || check_span(&bench);
    if (failed && table.is_json)
        table.rows = json_array();
    if (!failed) {
        mover_table_open(&table, columns, table.is_json);
        failed = run_rows(&bench, &table);
        is_blank =
            !failed && !bench.verifies && bench.read_percent == 100 && nv_bench_is_blank(&bench);
    }
    if (is_blank && !table.is_json)
        mover_fail("what was read is all zeroes, as of blocks that were never written: no disk is "
                   "read for a file's holes. --rw write --bs 1m --destroy-data writes them");
    if (bench.verifies && !failed && !table.is_json)
        printf("verification: all blocks are as they were written\n");
    if (!table.is_json)
        nv_paths_print(&bench.host);
    json_t *paths = bench.host.options.more_count ? nv_paths_json(&bench.host) : NULL;
    nv_host_close(&bench.host);
    return mover_table_close(&table,
                             json_pack("{s:s, s:b, s:b, s:b, s:b, s:o*, s:o*}", "rw", bench.rw,
                                       "polling", (int)bench.polls, "verify", (int)bench.verifies,
                                       "is_blank", (int)is_blank, "failed", failed, "rows",
                                       table.rows, "paths", paths)) ||
           failed;
}
