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

/* A time of more than 4 s counts as that. */
void pm_samples_put(struct pm_samples *samples, uint64_t index, uint64_t took_ns);
/* A table of one line, or JSON that begins with the fields of `json`, which is released. Sorts the
 * samples. */
int pm_samples_print(bool is_json, json_t *json, const char *kind, uint64_t bytes,
                     struct pm_samples *samples);

#endif
