/* SPDX-License-Identifier: BSD-2-Clause */
/* What a snapshot costs at the least: a bare loop on the other core that copies, sums and writes
 * the same bytes; and each part of it alone. */
#ifndef SW_BENCH_SNAPSHOT_FLOOR_H
#define SW_BENCH_SNAPSHOT_FLOOR_H

#include <stddef.h>
#include <stdint.h>

struct bench_floor;

/* The loop goes over `state` again and again, and writes to the file of that path. */
struct bench_floor *bench_floor_start(const void *state, size_t bytes, const char *path);
/* It goes on with so many bytes more, and rests then: as many as snapshots have beside a step. */
void bench_floor_allow(struct bench_floor *floor, uint64_t bytes);
void bench_floor_stop(struct bench_floor *floor);

/* The processor's seconds to copy all of it once, unit by unit; and to sum each block. */
double bench_copy_s(const void *state, size_t bytes);
double bench_sum_s(const void *state, size_t bytes);

#endif
