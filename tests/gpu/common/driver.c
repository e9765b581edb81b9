/* SPDX-License-Identifier: BSD-2-Clause */
#include "gpu/common/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpu/common/answer.h"

struct gpu_driver gpu;

static int missing_call(void)
{
    return GPU_NOT_FOUND;
}

static void *symbol_of(const char *name)
{
    void *found = dlsym(gpu.library, name);
    return found ? found : (void *)missing_call;
}

void gpu_load(void)
{
    gpu.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!gpu.library)
        answer_skip("there is no CUDA driver here: %s", dlerror());
#define GPU_LOAD(field, symbol, parameters) gpu.field = (int(*) parameters)symbol_of(symbol);
    GPU_CALLS(GPU_LOAD)
#undef GPU_LOAD
    int code = gpu.init(0);
    if (code)
        answer_skip("cuInit: %d %s", code, gpu_error_name(code));
    int count = 0;
    code = gpu.device_count(&count);
    if (code || !count)
        answer_skip("no CUDA device: cuDeviceGetCount: %d %s, %d devices", code,
                    gpu_error_name(code), count);
    gpu_must(gpu.device_get(&gpu.device, 0), "cuDeviceGet");
}

void gpu_open(void)
{
    gpu_load();
    gpu_must(gpu.primary_retain(&gpu.context, gpu.device), "cuDevicePrimaryCtxRetain");
    gpu_must(gpu.context_use(gpu.context), "cuCtxSetCurrent");
}

size_t gpu_free_bytes(void)
{
    size_t free_bytes = 0, total = 0;
    gpu_must(gpu.mem_info(&free_bytes, &total), "cuMemGetInfo");
    return free_bytes;
}

const char *gpu_error_name(int code)
{
    const char *name = NULL;
    if (!gpu.error_name || gpu.error_name(code, &name) || !name)
        return "?";
    return name;
}

void gpu_must(int code, const char *call)
{
    if (!code)
        return;
    answer_begin("failed");
    answer_text("call", call);
    answer_code("code", code);
    answer_end();
    exit(ANSWER_FAILED);
}
