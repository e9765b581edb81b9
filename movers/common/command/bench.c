/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/command/bench.h"

#include <assert.h>

#include "common/command/json.h"
#include "common/command/table.h"
#include "common/time/clock.h"

enum { COUNT_PRESET = 10000, COUNT_MAX = 10000000 };
static const uint64_t runtime_preset_ns = 10000000000;

void mover_take_bench_count(struct argp_state *state, void *place, char *text)
{
    struct mover_bench *bench = place;
    mover_take_bytes(state, &bench->count_max, text);
    bench->has_count = true;
    if (!bench->count_max || bench->count_max > COUNT_MAX)
        argp_error(state, "a bench measures 1 to %d times", COUNT_MAX);
}

void mover_take_bench_runtime(struct argp_state *state, void *place, char *text)
{
    struct mover_bench *bench = place;
    mover_take_time(state, &bench->runtime_ns, text);
    bench->has_runtime = true;
}

void mover_bench_begin(struct mover_bench *bench)
{
    if (!bench->has_count)
        bench->count_max = bench->has_runtime ? COUNT_MAX : COUNT_PRESET;
    if (!bench->has_runtime)
        bench->runtime_ns = runtime_preset_ns;
    bench->begun_ns = mover_now_ns();
    bench->until_ns =
        bench->has_count && !bench->has_runtime ? UINT64_MAX : bench->begun_ns + bench->runtime_ns;
}

bool mover_bench_goes_on(const struct mover_bench *bench)
{
    return !bench->latency.count ||
           (bench->latency.count < bench->count_max &&
            (bench->until_ns == UINT64_MAX || mover_now_ns() < bench->until_ns));
}

void mover_bench_add(struct mover_bench *bench, uint64_t start_ns)
{
    assert(bench->begun_ns && bench->begun_ns <= start_ns);
    mover_histogram_add(&bench->latency, mover_now_ns() - start_ns);
}

void mover_bench_end(struct mover_bench *bench)
{
    bench->took_ns = mover_now_ns() - bench->begun_ns;
}

static double us_at(const struct mover_histogram *latency, double share)
{
    return (double)mover_histogram_at(latency, share) / 1e3;
}

json_t *mover_bench_figures(const struct mover_histogram *latency, double seconds,
                            uint64_t request_bytes)
{
    const double count = (double)latency->count;
    const double iops = seconds > 0 ? count / seconds : 0;
    return json_pack("{sI sf sf sf sf sf sf sf}", "requests", (json_int_t)latency->count, "iops",
                     iops, "mb_per_s", iops * (double)request_bytes / 1e6, "mean_us",
                     latency->count ? (double)latency->sum_ns / 1e3 / count : 0, "p50_us",
                     us_at(latency, 0.5), "p99_us", us_at(latency, 0.99), "p999_us",
                     us_at(latency, 0.999), "max_us", (double)latency->max_ns / 1e3);
}

int mover_bench_print(const struct mover_bench *bench, bool is_json, const char *kind, json_t *more)
{
    static const struct mover_column columns[] = {{"KIND", NULL, .width = -12},
                                                  {"BYTES", "request_bytes", .width = 9},
                                                  {"COUNT", "requests", .width = 9},
                                                  {"MEAN us", "mean_us", .width = 10, .digits = 2},
                                                  {"P50 us", "p50_us", .width = 10, .digits = 2},
                                                  {"P99 us", "p99_us", .width = 10, .digits = 2},
                                                  {"MAX us", "max_us", .width = 10, .digits = 2},
                                                  {0}};
    const double seconds = (double)bench->took_ns / 1e9;
    json_t *figures = mover_bench_figures(&bench->latency, seconds, bench->request_bytes);
    struct mover_table table;
    json_object_update_new(more, json_pack("{sI sf}", "request_bytes",
                                           (json_int_t)bench->request_bytes, "seconds", seconds));
    json_object_update_new(more, figures);
    if (is_json)
        return mover_print_json(more);
    mover_table_open(&table, columns, false);
    mover_table_add(&table, kind, more);
    return mover_table_close(&table, table.rows);
}
