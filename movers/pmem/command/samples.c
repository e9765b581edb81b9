/* SPDX-License-Identifier: BSD-2-Clause */
#include "pmem/command/samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/time/clock.h"

enum { COUNT_MAX = 10000000 };

struct sample_figures {
    double mean_us, p50_us, p99_us, max_us;
};

void pm_samples_parse_count(struct argp_state *state, const char *text, struct pm_samples *samples)
{
    samples->count = mover_parse_bytes(state, text);
    samples->has_count = true;
    if (!samples->count || samples->count > COUNT_MAX)
        argp_error(state, "a bench measures 1 to %d times", COUNT_MAX);
}

void pm_samples_parse_runtime(struct argp_state *state, const char *text,
                              struct pm_samples *samples)
{
    samples->runtime_ms = mover_parse_seconds_ms(state, text);
    samples->has_runtime = true;
}

bool pm_samples_begin(struct pm_samples *samples)
{
    if (!samples->has_count)
        samples->count = samples->has_runtime ? COUNT_MAX : PM_COUNT;
    samples->until_ns = samples->has_count && !samples->has_runtime
                            ? UINT64_MAX
                            : mover_now_ns() + samples->runtime_ms * NS_PER_MS;
    samples->ns = calloc(samples->count, sizeof(*samples->ns));
    return samples->ns;
}

bool pm_samples_are_over(const struct pm_samples *samples, uint64_t taken)
{
    return taken >= samples->count || (taken && mover_now_ns() >= samples->until_ns);
}

void pm_samples_put(struct pm_samples *samples, uint64_t index, uint64_t took_ns)
{
    samples->ns[index] = took_ns < UINT32_MAX ? (uint32_t)took_ns : UINT32_MAX;
}

static int by_value(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double share_us(const struct pm_samples *samples, double share)
{
    return samples->ns[(uint64_t)((double)(samples->count - 1) * share)] / 1e3;
}

static struct sample_figures sum_up_samples(struct pm_samples *samples)
{
    double sum = 0;
    for (uint64_t i = 0; i < samples->count; i++)
        sum += samples->ns[i];
    qsort(samples->ns, samples->count, sizeof(*samples->ns), by_value);
    return (struct sample_figures){.mean_us = sum / (double)samples->count / 1e3,
                                   .p50_us = share_us(samples, 0.5),
                                   .p99_us = share_us(samples, 0.99),
                                   .max_us = share_us(samples, 1)};
}

int pm_samples_print(bool is_json, json_t *json, const char *kind, uint64_t bytes,
                     struct pm_samples *samples)
{
    const struct sample_figures f = sum_up_samples(samples);
    if (is_json) {
        const json_int_t size = (json_int_t)bytes, count = (json_int_t)samples->count;
        json_object_update_new(json, json_pack("{sI sI sf sf sf sf sI sI}", "request_bytes", size,
                                               "requests", count, "mean_us", f.mean_us, "p50_us",
                                               f.p50_us, "p99_us", f.p99_us, "max_us", f.max_us,
                                               "bs", size, "count", count));
        return mover_print_json(json);
    }
    json_decref(json);
    printf("%-12s %9s %9s %10s %10s %10s %10s\n", "KIND", "BYTES", "COUNT", "MEAN us", "P50 us",
           "P99 us", "MAX us");
    printf("%-12s %9u %9u %10.2f %10.2f %10.2f %10.2f\n", kind, (unsigned)bytes,
           (unsigned)samples->count, f.mean_us, f.p50_us, f.p99_us, f.max_us);
    return PM_STATUS_OK;
}
