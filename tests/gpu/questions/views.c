/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The same memory as three see it: the driver (MemGetInfo), the management library and nvidia-smi,
 * before 64 MiB of each kind are taken, while they are, and after.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gpu/common/answer.h"
#include "gpu/common/nvml.h"
#include "gpu/common/samples.h"
#include "gpu/common/shared.h"

enum { BYTES = 64 << 20 };

/* The first line that it prints, or "". */
static void read_smi(const char *query, char *out, size_t len)
{
    char command[256];
    *out = '\0';
    snprintf(command, sizeof(command),
             "timeout 5 nvidia-smi --query-%s --format=csv,noheader,nounits 2>/dev/null", query);
    FILE *file = popen(command, "r");
    if (!file)
        return;
    if (!fgets(out, (int)len, file))
        *out = '\0';
    out[strcspn(out, "\n")] = '\0';
    pclose(file);
}

static void answer_view(const char *kind, const char *when)
{
    char device[128], process[128];
    read_smi("gpu=memory.used,memory.reserved,memory.free", device, sizeof(device));
    read_smi("compute-apps=pid,used_memory", process, sizeof(process));
    answer_begin("view");
    answer_text("kind", kind);
    answer_text("when", when);
    answer_number("mem_info_free", gpu_free_bytes());
    nvml_answer_memory("nvml_used", (uint32_t)getpid());
    answer_text("smi_mib", device);
    answer_text("smi_process_mib", process);
    answer_end();
}

int main(void)
{
    struct shared shared;
    gpu_pointer managed = 0;
    gpu_open();
    nvml_open();
    for (enum shared_kind kind = 0; kind < SHARED_KINDS; kind++) {
        const char *name = kind == SHARED_IPC ? "alloc" : shared_name(kind);
        answer_view(name, "before");
        if (shared_make(&shared, kind, BYTES))
            continue;
        answer_view(name, "taken");
        shared_free(&shared);
        answer_view(name, "after");
    }
    if (gpu_free_bytes() / 4 > BYTES && !gpu.managed(&managed, BYTES, GPU_MANAGED_GLOBAL)) {
        answer_view("managed", "taken");
        gpu.set(managed, 1, BYTES / 4);
        gpu.context_wait();
        answer_view("managed", "written by the device");
        gpu.free(managed);
    }
    return 0;
}
