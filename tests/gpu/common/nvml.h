/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * NVIDIA's management library, loaded as the driver is: only what reads. Types and numbers are
 * those of the NVML API's reference. A function that is missing answers NVML_NOT_FOUND.
 */
#ifndef GPU_COMMON_NVML_H
#define GPU_COMMON_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NVML_OK = 0, NVML_INVALID = 2, NVML_NOT_SUPPORTED = 3, NVML_NOT_FOUND = 13 };

struct nvml_memory {
    uint64_t total, free, used;
};

struct nvml_memory_v2 {
    uint32_t version; /* NVML_MEMORY_V2 */
    uint64_t total, reserved, free, used;
};

#define NVML_MEMORY_V2 ((uint32_t)sizeof(struct nvml_memory_v2) | 2u << 24)

struct nvml_process {
    uint32_t pid;
    uint64_t used;
    uint32_t gpu_instance, compute_instance;
};

struct nvml_profile {
    uint32_t id, is_p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders,
        jpegs, ofas;
    uint64_t memory_mib;
};

/* X(field, symbol, parameters) */
#define NVML_CALLS(X)                                                                             \
    X(init, "nvmlInit_v2", (void))                                                                \
    X(shutdown, "nvmlShutdown", (void))                                                           \
    X(driver_version, "nvmlSystemGetDriverVersion", (char *text, unsigned len))                   \
    X(version, "nvmlSystemGetNVMLVersion", (char *text, unsigned len))                            \
    X(count, "nvmlDeviceGetCount_v2", (unsigned *count))                                          \
    X(device, "nvmlDeviceGetHandleByIndex_v2", (unsigned index, void **device))                   \
    X(memory, "nvmlDeviceGetMemoryInfo", (void *device, struct nvml_memory *memory))              \
    X(memory_v2, "nvmlDeviceGetMemoryInfo_v2", (void *device, struct nvml_memory_v2 *memory))     \
    X(bar, "nvmlDeviceGetBAR1MemoryInfo", (void *device, struct nvml_memory *memory))             \
    X(processes, "nvmlDeviceGetComputeRunningProcesses_v3",                                       \
      (void *device, unsigned *count, struct nvml_process *processes))                            \
    X(mig_mode, "nvmlDeviceGetMigMode", (void *device, unsigned *current, unsigned *pending))     \
    X(profile, "nvmlDeviceGetGpuInstanceProfileInfo",                                             \
      (void *device, unsigned profile, struct nvml_profile *info))                                \
    X(link_state, "nvmlDeviceGetNvLinkState", (void *device, unsigned link, unsigned *active))    \
    X(link_version, "nvmlDeviceGetNvLinkVersion",                                                 \
      (void *device, unsigned link, unsigned *version))                                           \
    X(pcie_generation, "nvmlDeviceGetCurrPcieLinkGeneration", (void *device, unsigned *value))    \
    X(pcie_generation_max, "nvmlDeviceGetMaxPcieLinkGeneration", (void *device, unsigned *value)) \
    X(pcie_width, "nvmlDeviceGetCurrPcieLinkWidth", (void *device, unsigned *value))              \
    X(pcie_width_max, "nvmlDeviceGetMaxPcieLinkWidth", (void *device, unsigned *value))           \
    X(compute_mode, "nvmlDeviceGetComputeMode", (void *device, unsigned *value))                  \
    X(persistence, "nvmlDeviceGetPersistenceMode", (void *device, unsigned *value))               \
    X(numa_node, "nvmlDeviceGetNumaNodeId", (void *device, unsigned *value))                      \
    X(cpus, "nvmlDeviceGetCpuAffinity", (void *device, unsigned words, unsigned long *set))       \
    X(ancestor, "nvmlDeviceGetTopologyCommonAncestor", (void *one, void *other, unsigned *level))

struct nvml {
#define NVML_FIELD(field, symbol, parameters) int(*field) parameters;
    NVML_CALLS(NVML_FIELD)
#undef NVML_FIELD
    void *library;
    void *first; /* device 0 */
};

extern struct nvml nvml;

/* False, with an answer that says why, if the library or a device is missing. */
bool nvml_open(void);

/* Fields of what the library says is used: KEY, KEY_v2, KEY_reserved, KEY_processes (their sum) and
 * KEY_own (of the process `pid`; 0: it is not listed). */
void nvml_answer_memory(const char *key, uint32_t pid);

/* What is used on the device, or 0. */
uint64_t nvml_used_bytes(void);

#endif
