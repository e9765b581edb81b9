/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kernels as PTX, which the driver compiles: no compiler of CUDA's is needed. Each has one thread,
 * but for `sum`. Times are those of the device's %globaltimer, in ns.
 *
 *   spin(ns, out)                     out[0], out[1]: when it began and ended
 *   store(to, value)                  stores 8 bytes, visible to all
 *   watch(at, value, limit_ns, out)   until the 8 bytes are `value`; out[0], out[1] as of spin,
 *                                     out[2]: what it saw last, out[3]: how often it looked
 *   ticks(count, out)                 `count` values of the timer that differ
 *   sum(from, words, out)             adds all 8 byte words to out[0], in blocks of 256 threads
 */
#ifndef GPU_COMMON_KERNELS_H
#define GPU_COMMON_KERNELS_H

#include "gpu/common/driver.h"

struct kernels {
    void *module;
    void *spin;
    void *store;
    void *watch;
    void *ticks;
    void *sum;
};

/* Ends the program if the driver refuses them. Says how long loading took. */
void kernels_load(struct kernels *kernels);

/* Each gives the code of the launch. */
int kernels_spin(const struct kernels *kernels, void *stream, uint64_t ns, gpu_pointer out);
int kernels_store(const struct kernels *kernels, void *stream, gpu_pointer to, uint64_t value);
int kernels_watch(const struct kernels *kernels, void *stream, gpu_pointer at, uint64_t value,
                  uint64_t limit_ns, gpu_pointer out);
int kernels_ticks(const struct kernels *kernels, void *stream, uint64_t count, gpu_pointer out);
int kernels_sum(const struct kernels *kernels, void *stream, gpu_pointer from, uint64_t words,
                gpu_pointer out);

#endif
