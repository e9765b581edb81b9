/* SPDX-License-Identifier: BSD-2-Clause */
/* The latency of one request after another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/command/old_option.h"
#include "common/time/clock.h"
#include "pmem/command/samples.h"

enum { KEY_BS = 0x2000, KEY_COUNT, KEY_RUNTIME, KEY_RW, KEY_RATE };
enum { PATIENCE_MS = 20000, BYTES_MAX = 1 << 26 };

enum kind { PERSISTENT, VISIBLE, WRITE, READ };
static const char *const kinds[] = {"persistent", "visible", "write", "read"};

struct bench {
    struct pm_remote remote;
    uint64_t bytes, offset, rate;
    enum kind kind;
    bool may_destroy;
    char *buffer;
    struct sw_pmem_mem *mem;
    struct pm_samples samples;
    struct sw_pmem_info info;
};

static const struct argp_option options[] = {
    {"bs", KEY_BS, "BYTES", 0, "Bytes of a request (4096)", 1},
    {NULL, 'B', NULL, MOVER_OLD, NULL, 0},
    {"count", KEY_COUNT, "N", 0, "How many requests (10000)", 1},
    {NULL, 'c', NULL, MOVER_OLD, NULL, 0},
    {"runtime", KEY_RUNTIME, "S", 0,
     "Ends after so many seconds, too (10; with --count alone it does not)", 1},
    {"rw", KEY_RW, "KIND", 0,
     "persistent (a write and its flush), visible, write (no flush) or read", 1},
    {NULL, 'w', NULL, MOVER_OLD, NULL, 0},
    {"rate", KEY_RATE, "BYTES", 0, "Bytes per second at most (as fast as it goes)", 1},
    {NULL, 'R', NULL, MOVER_OLD, NULL, 0},
    {"offset", 'f', "BYTES", 0, "Where in the region it begins (0)", 1},
    {"destroy-data", 'D', NULL, 0, "What is there may be overwritten", 1},
    {0},
};
static const struct argp_child children[] = {{&pm_remote_argp, 0, NULL, 0}, {0}};

static error_t pmem_parse_bench(int key, char *value, struct argp_state *state)
{
    struct bench *bench = state->input;
    switch (mover_current_key(state, options, key)) {
    case KEY_BS:
        bench->bytes = mover_parse_bytes(state, value);
        if (!bench->bytes || bench->bytes > BYTES_MAX)
            argp_error(state, "a request has 1 to %d bytes", BYTES_MAX);
        return 0;
    case KEY_COUNT:
        pm_samples_parse_count(state, value, &bench->samples);
        return 0;
    case KEY_RUNTIME:
        pm_samples_parse_runtime(state, value, &bench->samples);
        return 0;
    case KEY_RW:
        for (bench->kind = 0; bench->kind <= READ; bench->kind++)
            if (!strcmp(value, kinds[bench->kind]))
                return 0;
        argp_error(state, "\"%s\" is none of persistent, visible, write, read", value);
        return 0;
    case KEY_RATE:
        bench->rate = mover_parse_bytes(state, value);
        return 0;
    case 'f':
        bench->offset = mover_parse_bytes(state, value);
        return 0;
    case 'D':
        bench->may_destroy = true;
        return 0;
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &bench->remote;
        return 0;
    case ARGP_KEY_END:
        if (bench->kind != READ && !bench->may_destroy)
            argp_error(state, "writes overwrite what is there: say --destroy-data or --rw read");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static enum sw_pmem_status request_one(struct bench *bench, uint64_t offset)
{
    struct sw_pmem *pmem = bench->remote.pmem;
    const uint64_t deadline = sw_pmem_deadline_ms(PATIENCE_MS);
    const uint32_t bytes = (uint32_t)bench->bytes;
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

static int report_bench(struct bench *bench)
{
    const char *method = bench->info.flush == SW_PMEM_BY_FLUSH ? "flush" : "read";
    return pm_samples_print(bench->remote.is_json,
                            json_pack("{ss ss}", "rw", kinds[bench->kind], "flush", method),
                            kinds[bench->kind], bench->bytes, &bench->samples);
}

/* Lost time is not caught up. */
static uint64_t pace_ns(const struct bench *bench, uint64_t last_ns)
{
    uint64_t now_ns = mover_now_ns();
    while (bench->rate && now_ns < last_ns + bench->bytes * 1000000000 / bench->rate)
        now_ns = mover_now_ns();
    return now_ns;
}

static int measure_bench(struct bench *bench)
{
    uint64_t start = 0, i = 0;
    const uint64_t places = (bench->info.bytes - bench->offset) / bench->bytes;
    for (; !pm_samples_are_over(&bench->samples, i); i++) {
        start = pace_ns(bench, start);
        const enum sw_pmem_status status =
            request_one(bench, bench->offset + i % places * bench->bytes);
        const uint64_t took = mover_now_ns() - start;
        if (status)
            return pm_fail_status(&bench->remote, kinds[bench->kind], status);
        pm_samples_put(&bench->samples, i, took);
        pm_progress(&bench->remote, (i + 1) * bench->bytes, bench->samples.count * bench->bytes);
    }
    bench->samples.count = i;
    return report_bench(bench);
}

int pm_bench(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = pmem_parse_bench,
        .doc = "Measures requests one after another.",
        .children = children,
    };
    struct bench bench = {.bytes = 4096, .samples = {.runtime_ms = PM_RUNTIME_MS}};
    pm_remote_parse("bench", &argp, argc, argv, &bench.remote);
    int code = pm_remote_open(&bench.remote);
    if (code)
        return code;
    sw_pmem_info_of(bench.remote.pmem, &bench.info);
    bench.buffer = calloc(1, bench.bytes);
    if (bench.offset >= bench.info.bytes || bench.bytes > bench.info.bytes - bench.offset)
        code = pm_fail(&bench.remote, "the region has no room for such a request");
    else if (!bench.buffer || !pm_samples_begin(&bench.samples) ||
             sw_pmem_mem_register(bench.remote.pmem, bench.buffer, bench.bytes, &bench.mem))
        code = pm_fail(&bench.remote, "there is no memory for the buffer");
    if (!code)
        code = measure_bench(&bench);
    sw_pmem_mem_release(bench.mem);
    sw_pmem_close(bench.remote.pmem);
    free(bench.buffer);
    free(bench.samples.ns);
    return code;
}
