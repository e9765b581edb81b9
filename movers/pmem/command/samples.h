/* SPDX-License-Identifier: BSD-2-Clause */
/* Times of requests, each kept, and what is said of them. */
#ifndef SW_MOVERS_PMEM_SAMPLES_H
#define SW_MOVERS_PMEM_SAMPLES_H

#include <stdint.h>

#include "pmem/command/command.h"

struct pm_samples {
    uint32_t *ns; /* [count]; the caller frees it */
    uint64_t count;
};

struct pm_figures {
    double mean_us, p50_us, p99_us, max_us;
};

/* What takes more than 4 s counts as that. */
void pm_samples_put(struct pm_samples *samples, uint64_t index, uint64_t took_ns);
/* Sorts them. */
struct pm_figures pm_samples_of(struct pm_samples *samples);
/* A table of one line, or JSON that begins with the fields of `json`, which is released. */
int pm_samples_print(bool is_json, json_t *json, const char *kind, uint64_t bytes,
                     struct pm_samples *samples);

#endif
