/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory to measure with: malloc, reserved huge pages, or transparent huge pages. */
#ifndef BENCH_BUFFER_H
#define BENCH_BUFFER_H

#include <stddef.h>

enum bench_buffer_kind { BENCH_BUFFER_MALLOC, BENCH_BUFFER_HUGETLB, BENCH_BUFFER_THP };

/* `len_bytes` of touched memory, or NULL when this machine has none of that kind. Freed by the end
 * of the process. */
void *bench_buffer_create(enum bench_buffer_kind kind, size_t len_bytes);

#endif
