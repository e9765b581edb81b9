/* SPDX-License-Identifier: BSD-2-Clause */
/* What a context takes by itself, and how long it takes to make: the first one, a second one, a
 * module, a stream; what the management library and the driver say before and after. */
#include <unistd.h>

#include "gpu/common/answer.h"
#include "gpu/common/driver.h"
#include "gpu/common/kernels.h"
#include "gpu/common/nvml.h"
#include "gpu/common/samples.h"

static bool has_nvml;
static uint64_t step_start;

static void answer_state(const char *what, bool has_context)
{
    const uint64_t ns = clock_ns() - step_start;
    answer_begin(what);
    answer_number("ns", ns);
    if (has_context)
        answer_number("mem_info_free", gpu_free_bytes());
    if (has_nvml)
        nvml_answer_memory("nvml_used", (uint32_t)getpid());
    answer_end();
    step_start = clock_ns();
}

int main(void)
{
    void *second = NULL, *stream = NULL;
    struct kernels kernels;
    gpu_pointer pointer = 0;
    has_nvml = nvml_open();
    step_start = clock_ns();
    gpu_load();
    answer_state("after_init", false);
    gpu_must(gpu.primary_retain(&gpu.context, gpu.device), "cuDevicePrimaryCtxRetain");
    gpu_must(gpu.context_use(gpu.context), "cuCtxSetCurrent");
    answer_state("primary_context", true);
    kernels_load(&kernels);
    answer_state("module", true);
    gpu_must(gpu.stream_create(&stream, GPU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
    answer_state("stream", true);
    gpu_must(gpu.alloc(&pointer, 64), "cuMemAlloc");
    answer_state("first_alloc", true);
    gpu_must(kernels_spin(&kernels, stream, 1000, pointer), "cuLaunchKernel");
    gpu_must(gpu.stream_wait(stream), "cuStreamSynchronize");
    answer_state("first_kernel", true);
    const int code = gpu.context_create(&second, 0, gpu.device);
    answer_begin("second_context_code");
    answer_code("code", code);
    answer_end();
    if (!code) {
        answer_state("second_context", true);
        gpu.context_destroy(second);
        gpu_must(gpu.context_use(gpu.context), "cuCtxSetCurrent");
        answer_state("second_context_destroyed", true);
    }
    gpu.primary_release(gpu.device);
    answer_state("primary_released", false);
    return 0;
}
