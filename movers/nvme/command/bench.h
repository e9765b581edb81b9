/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of `bench` share: a measurement and its worker threads. */
#ifndef SW_MOVERS_NVME_BENCH_H
#define SW_MOVERS_NVME_BENCH_H

#include "common/command/histogram.h"
#include "nvme/command/host_commands.h"

enum { NV_SIZES_MAX = 16 };

struct nv_bench {
    struct nv_host host;
    uint32_t read_percent; /* of requests */
    bool is_random, verifies, polls;
    const char *rw;
    uint64_t sizes[NV_SIZES_MAX], depths[NV_SIZES_MAX];
    uint32_t sizes_count, depths_count, threads;
    uint64_t runtime_ns, ramp_ns, span_bytes, offset_bytes;
    uint32_t loops;
    bool has_runtime, may_destroy;
    struct sw_nvme_namespace ns;
};

/* One row of the result. */
struct nv_measure {
    uint32_t block_bytes, depth;
    double seconds;
    struct mover_histogram latency[2]; /* of reads, of writes */
    uint64_t errors;
};

/* Both say what went wrong, and return the exit status. */
int nv_bench_measure(struct nv_bench *bench, struct nv_measure *measure);
int nv_bench_verify(struct nv_bench *bench, struct nv_measure *measure);

/* Whether blocks all over the span are zeroes, as where nothing was ever written. */
bool nv_bench_is_blank(struct nv_bench *bench);

/* The content of a block by its address and the round that wrote it. */
void nv_pattern_fill(uint8_t *data, uint32_t block_bytes, uint64_t lba, uint64_t sequence);
/* NULL, or what is wrong: "a block of another address" and the like. */
const char *nv_pattern_check(const uint8_t *data, uint32_t block_bytes, uint64_t lba,
                             uint64_t sequence);

#endif
