/* SPDX-License-Identifier: BSD-2-Clause */
/* Times of requests, each kept, and what is said of them. */
#ifndef SW_MOVERS_PMEM_SAMPLES_H
#define SW_MOVERS_PMEM_SAMPLES_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "pmem/command/command.h"

struct pm_samples {
    uint32_t *ns; /* [count]; the caller frees it */
    uint64_t count;
    uint64_t runtime_ms, until_ns;
    bool has_count, has_runtime;
};

enum { PM_COUNT = 10000, PM_RUNTIME_MS = 10000 };

/* --count, --runtime: whichever is over first ends it. A count alone is kept to, however long it
 * takes. */
void pm_samples_parse_count(struct argp_state *state, const char *text, struct pm_samples *samples);
void pm_samples_parse_runtime(struct argp_state *state, const char *text,
                              struct pm_samples *samples);
/* False: no memory. The first one begins now. */
bool pm_samples_begin(struct pm_samples *samples);
/* `taken` of them are there. */
bool pm_samples_are_over(const struct pm_samples *samples, uint64_t taken);

/* A time of more than 4 s counts as that. */
void pm_samples_put(struct pm_samples *samples, uint64_t index, uint64_t took_ns);
/* A table of one line, or JSON that begins with the fields of `json`, which is released. `count`
 * says how many were taken, one at least. Sorts them. */
int pm_samples_print(bool is_json, json_t *json, const char *kind, uint64_t bytes,
                     struct pm_samples *samples);

#endif
