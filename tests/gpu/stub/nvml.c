/* SPDX-License-Identifier: BSD-2-Clause */
/* A stand-in for libnvidia-ml.so.1: as little as the recorder reads. */
#include <stdio.h>
#include <string.h>

#include "gpu/common/nvml.h"

#define STUB __attribute__((visibility("default")))

STUB int nvmlInit_v2(void)
{
    return NVML_OK;
}

STUB int nvmlShutdown(void)
{
    return NVML_OK;
}

STUB int nvmlSystemGetDriverVersion(char *text, unsigned len)
{
    snprintf(text, len, "stub");
    return NVML_OK;
}

STUB int nvmlSystemGetNVMLVersion(char *text, unsigned len)
{
    return nvmlSystemGetDriverVersion(text, len);
}

STUB int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 1;
    return NVML_OK;
}

STUB int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = "device";
    return index ? NVML_INVALID : NVML_OK;
}

STUB int nvmlDeviceGetMemoryInfo(void *device, struct nvml_memory *memory)
{
    *memory = (struct nvml_memory){1ull << 32, 1ull << 31, 1ull << 31};
    return device ? NVML_OK : NVML_INVALID;
}

STUB int nvmlDeviceGetMemoryInfo_v2(void *device, struct nvml_memory_v2 *memory)
{
    if (!device || memory->version != NVML_MEMORY_V2)
        return NVML_INVALID;
    memory->used = 1ull << 31;
    return NVML_OK;
}

STUB int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count,
                                                 struct nvml_process *processes)
{
    processes[0] = (struct nvml_process){.pid = 1, .used = 1};
    *count = 1;
    return device ? NVML_OK : NVML_INVALID;
}

STUB int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
    *current = *pending = 0;
    return device ? NVML_OK : NVML_INVALID;
}

STUB int nvmlDeviceGetGpuInstanceProfileInfo(void *device, unsigned profile,
                                             struct nvml_profile *info)
{
    memset(info, 0, sizeof(*info));
    return device && profile < 2 ? NVML_OK : NVML_NOT_SUPPORTED;
}

STUB int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active)
{
    *active = 0;
    return device && link < 2 ? NVML_OK : NVML_NOT_SUPPORTED;
}
