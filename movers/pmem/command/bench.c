/* SPDX-License-Identifier: BSD-2-Clause */
/* The latency of one request after another. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/command/bench.h"
#include "common/command/progress.h"
#include "common/time/clock.h"
#include "pmem/command/command.h"

enum { PATIENCE_MS = 20000, BYTES_MAX = 1 << 26 };

enum kind { PERSISTENT, VISIBLE, WRITE, READ };
static const char *const kinds[] = {"persistent", "visible", "write", "read"};

struct bench {
    struct pm_remote remote;
    struct mover_bench requests;
    uint64_t offset, rate;
    enum kind kind;
    bool may_destroy;
    char *buffer;
    struct sw_pmem_mem *mem;
    struct sw_pmem_info info;
};

static void bench_take_kind(struct argp_state *state, void *place, char *text)
{
    enum kind *kind = place;
    for (*kind = 0; *kind <= READ; ++*kind)
        if (!strcmp(text, kinds[*kind]))
            return;
    argp_error(state, "\"%s\" is none of persistent, visible, write, read", text);
}

#define BENCH(member) offsetof(struct bench, member)

static const struct mover_option options[] = {
    MOVER_OPTION_BS(BENCH(requests.request_bytes), "4096"),
    {.letter = 'B', .flags = MOVER_OLD},
    MOVER_OPTION_COUNT(BENCH(requests)),
    {.letter = 'c', .flags = MOVER_OLD},
    MOVER_OPTION_RUNTIME(BENCH(requests)),
    {"rw", 0, "KIND", 0, "persistent (a write and its flush), visible, write (no flush) or read", 1,
     bench_take_kind, BENCH(kind)},
    {.letter = 'w', .flags = MOVER_OLD},
    {"rate", 0, "BYTES", 0, "Bytes per second at most (as fast as it goes)", 1,
     MOVER_TO(struct bench, rate)},
    {.letter = 'R', .flags = MOVER_OLD},
    {"offset", 'f', "BYTES", 0, "Where in the region it begins (0)", 1,
     MOVER_TO(struct bench, offset)},
    {"destroy-data", 'D', NULL, 0, "What is there may be overwritten", 1,
     MOVER_TO(struct bench, may_destroy)},
    {0},
};

static void check_bench(struct argp_state *state, void *arguments)
{
    const struct bench *bench = arguments;
    if (!bench->requests.request_bytes || bench->requests.request_bytes > BYTES_MAX)
        argp_error(state, "a request has 1 to %d bytes", BYTES_MAX);
    if (bench->kind != READ && !bench->may_destroy)
        argp_error(state, "writes overwrite what is there: say --destroy-data or --rw read");
}

static enum sw_pmem_status request_one(struct bench *bench, uint64_t offset)
{
    struct sw_pmem *pmem = bench->remote.pmem;
    const uint64_t deadline = sw_pmem_deadline_ms(PATIENCE_MS);
    const uint32_t bytes = (uint32_t)bench->requests.request_bytes;
    switch (bench->kind) {
    case PERSISTENT:
        return sw_pmem_write_flush(pmem, offset, bench->buffer, bytes, bench->mem,
                                   SW_PMEM_FLUSH_PERSISTENT, deadline);
    case VISIBLE:
        return sw_pmem_write_flush(pmem, offset, bench->buffer, bytes, bench->mem,
                                   SW_PMEM_FLUSH_VISIBLE, deadline);
    case WRITE:
        return sw_pmem_write(pmem, offset, bench->buffer, bytes, bench->mem, deadline);
    case READ:
        return sw_pmem_read(pmem, offset, bench->buffer, bytes, bench->mem, deadline);
    }
    return SW_PMEM_INVALID;
}

static int report_bench(const struct bench *bench)
{
    const json_int_t bytes = (json_int_t)bench->requests.request_bytes;
    return mover_bench_print(&bench->requests, bench->remote.is_json, kinds[bench->kind],
                             json_pack("{ss ss sI sI}", "rw", kinds[bench->kind], "flush",
                                       bench->info.flush == SW_PMEM_BY_FLUSH ? "flush" : "read",
                                       "bs", bytes, "count",
                                       (json_int_t)bench->requests.latency.count));
}

/* Lost time is not caught up. */
static uint64_t pace_ns(const struct bench *bench, uint64_t last_ns)
{
    uint64_t now_ns = mover_now_ns();
    while (bench->rate &&
           now_ns < last_ns + bench->requests.request_bytes * 1000000000 / bench->rate)
        now_ns = mover_now_ns();
    return now_ns;
}

static int measure_bench(struct bench *bench)
{
    struct mover_bench *requests = &bench->requests;
    const uint64_t bytes = requests->request_bytes;
    const uint64_t places = (bench->info.bytes - bench->offset) / bytes;
    uint64_t start = 0;
    struct mover_progress progress;
    mover_bench_begin(requests);
    mover_progress_begin(&progress, requests->count_max * bytes,
                         !bench->remote.is_json && isatty(STDERR_FILENO));
    while (mover_bench_goes_on(requests)) {
        start = pace_ns(bench, start);
        const enum sw_pmem_status status =
            request_one(bench, bench->offset + requests->latency.count % places * bytes);
        if (status)
            return pm_fail_status(&bench->remote, kinds[bench->kind], status);
        mover_bench_add(requests, start);
        mover_progress_at(&progress, requests->latency.count * bytes);
    }
    mover_bench_end(requests);
    mover_progress_end(&progress);
    return report_bench(bench);
}

int pm_bench(int argc, char **argv)
{
    static const struct mover_usage usage = {.about = "Measures requests one after another.",
                                             .own = {.rows = options, .check = check_bench},
                                             .shared = &pm_remote_options};
    static struct bench bench = {.requests = {.request_bytes = 4096}};
    const uint64_t *bytes = &bench.requests.request_bytes;
    pm_remote_parse(&usage, argc, argv, &bench);
    int code = pm_remote_open(&bench.remote);
    if (code)
        return code;
    sw_pmem_info_of(bench.remote.pmem, &bench.info);
    bench.buffer = calloc(1, *bytes);
    if (bench.offset >= bench.info.bytes || *bytes > bench.info.bytes - bench.offset)
        code = mover_fail("the region has no room for such a request");
    else if (!bench.buffer ||
             sw_pmem_mem_register(bench.remote.pmem, bench.buffer, *bytes, &bench.mem))
        code = mover_fail("there is no memory for the buffer");
    if (!code)
        code = measure_bench(&bench);
    sw_pmem_mem_release(bench.mem);
    sw_pmem_close(bench.remote.pmem);
    free(bench.buffer);
    return code;
}
