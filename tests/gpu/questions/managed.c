/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Managed memory: what it takes when it is made, when the processor has written it and when a
 * kernel has read it. It is never more than 64 MiB, nor a quarter of what is free: a program that
 * asks for more than the device has can hang the device.
 */
#include <string.h>
#include <unistd.h>

#include "gpu/common/answer.h"
#include "gpu/common/driver.h"
#include "gpu/common/kernels.h"
#include "gpu/common/nvml.h"
#include "gpu/common/samples.h"

enum { MIB = 1 << 20, BYTES_MAX = 64 * MIB };

static size_t free_before;
static uint64_t used_before;

static void answer_step(const char *what, size_t bytes, uint64_t start)
{
    const uint64_t ns = clock_ns() - start;
    answer_begin(what);
    answer_number("bytes", bytes);
    answer_number("ns", ns);
    answer_signed("mem_info_took", (int64_t)(free_before - gpu_free_bytes()));
    answer_signed("nvml_took", (int64_t)(nvml_used_bytes() - used_before));
    answer_end();
}

static void ask_size(const struct kernels *kernels, gpu_pointer out, size_t bytes)
{
    gpu_pointer pointer = 0;
    free_before = gpu_free_bytes();
    used_before = nvml_used_bytes();
    if (bytes > free_before / 4)
        return;
    uint64_t start = clock_ns();
    const int code = gpu.managed(&pointer, bytes, GPU_MANAGED_GLOBAL);
    if (code) {
        answer_begin("managed_refused");
        answer_number("bytes", bytes);
        answer_code("code", code);
        answer_end();
        return;
    }
    answer_step("made", bytes, start);
    start = clock_ns();
    memset((void *)pointer, 1, bytes);
    answer_step("written_by_processor", bytes, start);
    start = clock_ns();
    gpu_must(kernels_sum(kernels, NULL, pointer, bytes / 8, out), "cuLaunchKernel");
    gpu_must(gpu.context_wait(), "cuCtxSynchronize");
    answer_step("read_by_kernel", bytes, start);
    start = clock_ns();
    gpu_must(gpu.free(pointer), "cuMemFree");
    answer_step("freed", bytes, start);
}

int main(void)
{
    struct kernels kernels;
    gpu_pointer out = 0;
    gpu_open();
    nvml_open();
    kernels_load(&kernels);
    gpu_must(gpu.alloc(&out, 64), "cuMemAlloc");
    ask_size(&kernels, out, 4096);
    ask_size(&kernels, out, 2 * MIB);
    if (!is_brief())
        ask_size(&kernels, out, BYTES_MAX);
    return 0;
}
