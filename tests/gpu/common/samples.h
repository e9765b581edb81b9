/* SPDX-License-Identifier: BSD-2-Clause */
/* Times that were measured: their least, median, 90th and 99th percentile. */
#ifndef GPU_COMMON_SAMPLES_H
#define GPU_COMMON_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/common/clock.h"

enum { SAMPLES_MAX = 4096 };

struct samples {
    size_t count;
    uint64_t ns[SAMPLES_MAX];
};

/* True where all is to be short (RECORD_BRIEF is set): the dry run. */
bool is_brief(void);

/* Further ones than SAMPLES_MAX are left out. */
void samples_add(struct samples *samples, uint64_t ns);

/* Fields KEY_min_ns, KEY_median_ns, KEY_p90_ns, KEY_p99_ns, KEY_max_ns and KEY_count of the line
 * that is being answered. Sorts the samples. */
void samples_answer(struct samples *samples, const char *key);

/* Sorts the samples; 0 if there is none. */
uint64_t samples_median(struct samples *samples);

#endif
