/* SPDX-License-Identifier: BSD-2-Clause */
#include "gpu/common/nvml.h"

#include <dlfcn.h>
#include <stdio.h>

#include "gpu/common/answer.h"

enum { PROCESSES_MAX = 64 };

struct nvml nvml;

static int missing_call(void)
{
    return NVML_NOT_FOUND;
}

static void *symbol_of(const char *name)
{
    void *found = dlsym(nvml.library, name);
    return found ? found : (void *)missing_call;
}

static bool tell_missing(const char *what, int code)
{
    answer_begin("nvml_missing");
    answer_text("call", what);
    answer_signed("nvml", code);
    answer_end();
    return false;
}

bool nvml_open(void)
{
    nvml.library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml.library)
        return tell_missing("dlopen libnvidia-ml.so.1", NVML_NOT_FOUND);
#define NVML_LOAD(field, symbol, parameters) nvml.field = (int(*) parameters)symbol_of(symbol);
    NVML_CALLS(NVML_LOAD)
#undef NVML_LOAD
    int code = nvml.init();
    if (code)
        return tell_missing("nvmlInit", code);
    code = nvml.device(0, &nvml.first);
    return !code || tell_missing("nvmlDeviceGetHandleByIndex", code);
}

static void answer_field(const char *key, const char *rest, uint64_t value)
{
    char field[96];
    snprintf(field, sizeof(field), "%s%s", key, rest);
    answer_number(field, value);
}

static void answer_processes(const char *key, uint32_t pid)
{
    struct nvml_process found[PROCESSES_MAX];
    unsigned count = PROCESSES_MAX;
    uint64_t sum = 0, own = 0;
    const int code = nvml.processes(nvml.first, &count, found);
    for (unsigned i = 0; !code && i < count; i++) {
        sum += found[i].used;
        own += found[i].pid == pid ? found[i].used : 0;
    }
    answer_field(key, "_processes_code", (uint64_t)code);
    answer_field(key, "_processes_listed", code ? 0 : count);
    answer_field(key, "_processes", sum);
    answer_field(key, "_own", own);
}

void nvml_answer_memory(const char *key, uint32_t pid)
{
    if (!nvml.first)
        return;
    struct nvml_memory memory = {0};
    struct nvml_memory_v2 second = {.version = NVML_MEMORY_V2};
    if (!nvml.memory(nvml.first, &memory))
        answer_field(key, "", memory.used);
    if (!nvml.memory_v2(nvml.first, &second)) {
        answer_field(key, "_v2", second.used);
        answer_field(key, "_reserved", second.reserved);
    }
    answer_processes(key, pid);
}

uint64_t nvml_used_bytes(void)
{
    struct nvml_memory memory = {0};
    return nvml.first && !nvml.memory(nvml.first, &memory) ? memory.used : 0;
}
