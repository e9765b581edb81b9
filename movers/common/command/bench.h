/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the benches of all movers do alike: they end by number or time, whichever comes first, keep
 * the latency of each request, and print it in the same words.
 *
 *     mover_bench_begin(&bench);
 *     while (mover_bench_goes_on(&bench)) {
 *         const uint64_t start_ns = mover_now_ns();
 *         ...
 *         mover_bench_add(&bench, start_ns);
 *     }
 *     mover_bench_end(&bench);
 *     return mover_bench_print(&bench, is_json, "echo", json_object());
 */
#ifndef SW_MOVERS_BENCH_H
#define SW_MOVERS_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/command/histogram.h"
#include "common/command/option.h"

/* It has 10 KiB: too much for the stack. */
struct mover_bench {
    uint64_t request_bytes; /* of each */
    struct mover_histogram latency;
    uint64_t begun_ns, until_ns, took_ns; /* by mover_now_ns() */
    uint64_t count_max, runtime_ns;       /* as --count and --runtime say */
    bool has_count, has_runtime;
};

/* For rows of --count and --runtime; the place is a struct mover_bench. Whichever is over first
 * ends the bench: without them 10,000 requests or 10 s. A count alone is kept to, however long it
 * takes. One request is made in any case. */
mover_take mover_take_bench_count;
mover_take mover_take_bench_runtime;

/* Rows for these, and for the bytes of a request, with their offsets. */
/* clang-format off */
#define MOVER_OPTION_BS(at, preset) \
    {"bs", 0, "BYTES", 0, "Bytes of a request (" preset ")", 1, mover_take_bytes, at}
#define MOVER_OPTION_COUNT(at) \
    {"count", 0, "N", 0, "How many requests (10000)", 1, mover_take_bench_count, at}
#define MOVER_OPTION_RUNTIME(at) \
    {"runtime", 0, "S", 0, "Ends after so many seconds, too (10; with --count alone it does not)", \
     1, mover_take_bench_runtime, at}
/* clang-format on */

void mover_bench_begin(struct mover_bench *bench);
/* Whether one more request is to be made. */
bool mover_bench_goes_on(const struct mover_bench *bench);
/* A request that began at `start_ns` of mover_now_ns() has ended now. */
void mover_bench_add(struct mover_bench *bench, uint64_t start_ns);
void mover_bench_end(struct mover_bench *bench);

/* requests, iops, mb_per_s, mean_us, p50_us, p99_us, p999_us, max_us; 0 where there were none. */
json_t *mover_bench_figures(const struct mover_histogram *latency, double seconds,
                            uint64_t request_bytes);
/* A table of one line, or one object of JSON: the keys of `more`, which is released, then
 * request_bytes, seconds and the figures. `kind` is what was done. Returns the exit status. */
int mover_bench_print(const struct mover_bench *bench, bool is_json, const char *kind,
                      json_t *more);

#endif
