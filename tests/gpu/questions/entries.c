/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What cuGetProcAddress gives by version: for each name and version, whether it is what dlsym()
 * gives under the plain name or with a suffix, and its place in the library. A shim must answer as
 * the driver does.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "gpu/common/answer.h"
#include "gpu/common/driver.h"

static const char *const names[] = {
    "cuInit",
    "cuGetProcAddress",
    "cuMemAlloc",
    "cuMemFree",
    "cuMemGetInfo",
    "cuMemAllocManaged",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemCreate",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemRelease",
    "cuMemAddressReserve",
    "cuMemSetAccess",
    "cuMemExportToShareableHandle",
    "cuMemImportFromShareableHandle",
    "cuMemGetHandleForAddressRange",
    "cuMemHostAlloc",
    "cuMemHostRegister",
    "cuMemPoolCreate",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle",
    "cuIpcCloseMemHandle",
    "cuMemcpy",
    "cuMemcpyAsync",
    "cuMemcpyHtoD",
    "cuMemcpyDtoHAsync",
    "cuMemcpyBatchAsync",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuGraphLaunch",
    "cuGraphInstantiate",
    "cuStreamSynchronize",
    "cuStreamBeginCapture",
    "cuCtxCreate",
    "cuCtxSynchronize",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem",
    "cuDeviceGetUuid",
    "cuEventRecord",
    "cuEventElapsedTime",
    "cuNothing",
};
static const int versions[] = {3000, 3020, 4000, 11000, 11020, 11030, 12000, 12080, 13000, 99000};
static const char *const suffixes[] = {"", "_v2", "_v3", "_v4", "_ptsz", "_v2_ptsz", "_ptds"};

/* The name under which dlsym() gives the same, or "". */
static void name_of(void *function, const char *name, char *out, size_t len)
{
    *out = '\0';
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        char full[128];
        snprintf(full, sizeof(full), "%s%s", name, suffixes[i]);
        if (dlsym(gpu.library, full) == function) {
            snprintf(out, len, "%s", full);
            return;
        }
    }
}

static void ask_name(const char *name, int version, uint64_t flags)
{
    void *function = NULL;
    int status = -1;
    Dl_info info = {0};
    char same[128] = "";
    const int code = gpu.proc_address(name, &function, version, flags, &status);
    if (function) {
        dladdr(function, &info);
        name_of(function, name, same, sizeof(same));
    }
    answer_begin("entry");
    answer_text("name", name);
    answer_number("version", (uint64_t)version);
    answer_number("flags", flags);
    answer_code("code", code);
    answer_signed("status", status);
    answer_number("is_null", !function);
    if (function) {
        answer_text("same_as", same);
        answer_text("nearest", info.dli_sname ? info.dli_sname : "");
        answer_number("offset", (uint64_t)((char *)function - (char *)info.dli_fbase));
    }
    answer_end();
}

int main(void)
{
    gpu_load();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        for (size_t n = 0; n < sizeof(versions) / sizeof(versions[0]); n++)
            ask_name(names[i], versions[n], 0);
    for (uint64_t flags = 1; flags <= 4; flags++)
        ask_name("cuMemcpyAsync", 12000, flags);
    return 0;
}
