/* SPDX-License-Identifier: BSD-2-Clause */
#include "gpu/common/samples.h"

#include <stdio.h>
#include <stdlib.h>

#include "gpu/common/answer.h"

bool is_brief(void)
{
    return getenv("RECORD_BRIEF") != NULL;
}

void samples_add(struct samples *samples, uint64_t ns)
{
    if (samples->count < SAMPLES_MAX)
        samples->ns[samples->count++] = ns;
}

static int compare_ns(const void *one, const void *other)
{
    const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

static void sort_samples(struct samples *samples)
{
    qsort(samples->ns, samples->count, sizeof(samples->ns[0]), compare_ns);
}

static void answer_percentile(const struct samples *samples, const char *key, const char *name,
                              size_t per_cent)
{
    char field[96];
    snprintf(field, sizeof(field), "%s_%s_ns", key, name);
    answer_number(field, samples->ns[(samples->count - 1) * per_cent / 100]);
}

void samples_answer(struct samples *samples, const char *key)
{
    char field[96];
    snprintf(field, sizeof(field), "%s_count", key);
    answer_number(field, samples->count);
    if (!samples->count)
        return;
    sort_samples(samples);
    answer_percentile(samples, key, "min", 0);
    answer_percentile(samples, key, "median", 50);
    answer_percentile(samples, key, "p90", 90);
    answer_percentile(samples, key, "p99", 99);
    answer_percentile(samples, key, "max", 100);
}

uint64_t samples_median(struct samples *samples)
{
    sort_samples(samples);
    return samples->count ? samples->ns[(samples->count - 1) / 2] : 0;
}
