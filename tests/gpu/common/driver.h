/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CUDA's driver, loaded when a program begins: what is asked needs nothing but libcuda.so.1, and is
 * built where there is no CUDA. Types and numbers are those of the CUDA Driver API's manual;
 * abi.c compares them with CUDA's header where that is installed. A function that a driver does not
 * have answers GPU_NOT_FOUND.
 */
#ifndef GPU_COMMON_DRIVER_H
#define GPU_COMMON_DRIVER_H

#include <stddef.h>
#include <stdint.h>

enum {
    GPU_OK = 0,
    GPU_INVALID_VALUE = 1,
    GPU_OUT_OF_MEMORY = 2,
    GPU_NOT_INITIALIZED = 3,
    GPU_INVALID_CONTEXT = 201,
    GPU_INVALID_HANDLE = 400,
    GPU_NOT_FOUND = 500,
    GPU_NOT_READY = 600,
    GPU_NOT_SUPPORTED = 801,
};

enum {
    GPU_PINNED = 1,      /* CUmemAllocationType */
    GPU_ON_DEVICE = 1,   /* CUmemLocationType */
    GPU_HANDLE_NONE = 0, /* CUmemAllocationHandleType */
    GPU_HANDLE_DESCRIPTOR = 1,
    GPU_HANDLE_FABRIC = 8,
    GPU_GRANULARITY_MINIMUM = 0,
    GPU_GRANULARITY_RECOMMENDED = 1,
    GPU_READ = 1, /* CUmemAccess_flags */
    GPU_READ_WRITE = 3,
    GPU_RANGE_DMABUF = 1, /* CUmemRangeHandleType */
    GPU_MANAGED_GLOBAL = 1,
    GPU_IPC_LAZY_PEER = 1,
    GPU_HOST_PORTABLE = 1,
    GPU_HOST_MAPPED = 2,
    GPU_STREAM_NON_BLOCKING = 1,
    GPU_EVENT_DEFAULT = 0,
    GPU_EVENT_NO_TIMING = 2,
    GPU_CAPTURE_RELAXED = 2,
    GPU_DESCRIPTOR_BYTES = 64, /* of the handles and exports that are passed by value */
};

enum {
    GPU_POOL_RELEASE_THRESHOLD = 4, /* CUmemPool_attribute */
    GPU_POOL_RESERVED = 5,
    GPU_POOL_USED = 7,
};

struct gpu_location {
    uint32_t type;
    int32_t id;
};

struct gpu_allocation {
    uint32_t type;
    uint32_t handles;
    struct gpu_location location;
    void *of_windows;
    uint8_t compression;
    uint8_t rdma_capable;
    uint16_t usage;
    uint8_t reserved[4];
};

struct gpu_access {
    struct gpu_location location;
    uint32_t flags;
};

struct gpu_pool_properties {
    uint32_t type;
    uint32_t handles;
    struct gpu_location location;
    void *of_windows;
    uint64_t len_max;
    uint16_t usage;
    uint8_t reserved[54];
};

struct gpu_handle {
    unsigned char bytes[GPU_DESCRIPTOR_BYTES];
};

typedef uint64_t gpu_pointer;

/* X(field, symbol, parameters) */
#define GPU_CALLS(X)                                                                               \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(version, "cuDriverGetVersion", (int *version))                                               \
    X(error_name, "cuGetErrorName", (int code, const char **name))                                 \
    X(device_count, "cuDeviceGetCount", (int *count))                                              \
    X(device_get, "cuDeviceGet", (int *device, int index))                                         \
    X(device_name, "cuDeviceGetName", (char *name, int len, int device))                           \
    X(device_uuid, "cuDeviceGetUuid", (void *uuid, int device))                                    \
    X(device_bus, "cuDeviceGetPCIBusId", (char *bus, int len, int device))                         \
    X(device_total, "cuDeviceTotalMem_v2", (size_t * bytes, int device))                           \
    X(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))           \
    X(primary_retain, "cuDevicePrimaryCtxRetain", (void **context, int device))                    \
    X(primary_release, "cuDevicePrimaryCtxRelease_v2", (int device))                               \
    X(context_create, "cuCtxCreate_v2", (void **context, unsigned flags, int device))              \
    X(context_destroy, "cuCtxDestroy_v2", (void *context))                                         \
    X(context_use, "cuCtxSetCurrent", (void *context))                                             \
    X(context_wait, "cuCtxSynchronize", (void))                                                    \
    X(priority_range, "cuCtxGetStreamPriorityRange", (int *least, int *greatest))                  \
    X(mem_info, "cuMemGetInfo_v2", (size_t * free, size_t * total))                                \
    X(alloc, "cuMemAlloc_v2", (gpu_pointer * pointer, size_t bytes))                               \
    X(free, "cuMemFree_v2", (gpu_pointer pointer))                                                 \
    X(managed, "cuMemAllocManaged", (gpu_pointer * pointer, size_t bytes, unsigned flags))         \
    X(range, "cuMemGetAddressRange_v2", (gpu_pointer * base, size_t * bytes, gpu_pointer pointer)) \
    X(pointer_attribute, "cuPointerGetAttribute",                                                  \
      (void *value, int attribute, gpu_pointer pointer))                                           \
    X(host_alloc, "cuMemHostAlloc", (void **pointer, size_t bytes, unsigned flags))                \
    X(host_free, "cuMemFreeHost", (void *pointer))                                                 \
    X(host_register, "cuMemHostRegister_v2", (void *pointer, size_t bytes, unsigned flags))        \
    X(host_unregister, "cuMemHostUnregister", (void *pointer))                                     \
    X(host_pointer, "cuMemHostGetDevicePointer_v2",                                                \
      (gpu_pointer * pointer, void *host, unsigned flags))                                         \
    X(set, "cuMemsetD32_v2", (gpu_pointer to, unsigned value, size_t count))                       \
    X(to_device, "cuMemcpyHtoD_v2", (gpu_pointer to, const void *from, size_t bytes))              \
    X(to_host, "cuMemcpyDtoH_v2", (void *to, gpu_pointer from, size_t bytes))                      \
    X(within, "cuMemcpyDtoD_v2", (gpu_pointer to, gpu_pointer from, size_t bytes))                 \
    X(to_device_async, "cuMemcpyHtoDAsync_v2",                                                     \
      (gpu_pointer to, const void *from, size_t bytes, void *stream))                              \
    X(to_host_async, "cuMemcpyDtoHAsync_v2",                                                       \
      (void *to, gpu_pointer from, size_t bytes, void *stream))                                    \
    X(within_async, "cuMemcpyDtoDAsync_v2",                                                        \
      (gpu_pointer to, gpu_pointer from, size_t bytes, void *stream))                              \
    X(granularity, "cuMemGetAllocationGranularity",                                                \
      (size_t * bytes, const struct gpu_allocation *wanted, int which))                            \
    X(reserve, "cuMemAddressReserve",                                                              \
      (gpu_pointer * pointer, size_t bytes, size_t alignment, gpu_pointer at, uint64_t flags))     \
    X(unreserve, "cuMemAddressFree", (gpu_pointer pointer, size_t bytes))                          \
    X(create, "cuMemCreate",                                                                       \
      (uint64_t * handle, size_t bytes, const struct gpu_allocation *wanted, uint64_t flags))      \
    X(release, "cuMemRelease", (uint64_t handle))                                                  \
    X(map, "cuMemMap",                                                                             \
      (gpu_pointer pointer, size_t bytes, size_t offset, uint64_t handle, uint64_t flags))         \
    X(unmap, "cuMemUnmap", (gpu_pointer pointer, size_t bytes))                                    \
    X(set_access, "cuMemSetAccess",                                                                \
      (gpu_pointer pointer, size_t bytes, const struct gpu_access *access, size_t count))          \
    X(export, "cuMemExportToShareableHandle",                                                      \
      (void *shared, uint64_t handle, unsigned kind, uint64_t flags))                              \
    X(import, "cuMemImportFromShareableHandle", (uint64_t * handle, void *shared, unsigned kind))  \
    X(range_handle, "cuMemGetHandleForAddressRange",                                               \
      (void *handle, gpu_pointer pointer, size_t bytes, int kind, uint64_t flags))                 \
    X(pool_default, "cuDeviceGetDefaultMemPool", (void **pool, int device))                        \
    X(pool_create, "cuMemPoolCreate", (void **pool, const struct gpu_pool_properties *wanted))     \
    X(pool_destroy, "cuMemPoolDestroy", (void *pool))                                              \
    X(pool_trim, "cuMemPoolTrimTo", (void *pool, size_t kept))                                     \
    X(pool_get, "cuMemPoolGetAttribute", (void *pool, int attribute, void *value))                 \
    X(pool_set, "cuMemPoolSetAttribute", (void *pool, int attribute, void *value))                 \
    X(pool_access, "cuMemPoolSetAccess",                                                           \
      (void *pool, const struct gpu_access *access, size_t count))                                 \
    X(pool_alloc, "cuMemAllocFromPoolAsync",                                                       \
      (gpu_pointer * pointer, size_t bytes, void *pool, void *stream))                             \
    X(free_async, "cuMemFreeAsync", (gpu_pointer pointer, void *stream))                           \
    X(pool_export, "cuMemPoolExportToShareableHandle",                                             \
      (void *shared, void *pool, unsigned kind, uint64_t flags))                                   \
    X(pool_import, "cuMemPoolImportFromShareableHandle",                                           \
      (void **pool, void *shared, unsigned kind, uint64_t flags))                                  \
    X(pool_export_pointer, "cuMemPoolExportPointer",                                               \
      (struct gpu_handle * exported, gpu_pointer pointer))                                         \
    X(pool_import_pointer, "cuMemPoolImportPointer",                                               \
      (gpu_pointer * pointer, void *pool, struct gpu_handle *exported))                            \
    X(ipc_get, "cuIpcGetMemHandle", (struct gpu_handle * handle, gpu_pointer pointer))             \
    X(ipc_open, "cuIpcOpenMemHandle_v2",                                                           \
      (gpu_pointer * pointer, struct gpu_handle handle, unsigned flags))                           \
    X(ipc_close, "cuIpcCloseMemHandle", (gpu_pointer pointer))                                     \
    X(stream_create, "cuStreamCreateWithPriority", (void **stream, unsigned flags, int priority))  \
    X(stream_destroy, "cuStreamDestroy_v2", (void *stream))                                        \
    X(stream_wait, "cuStreamSynchronize", (void *stream))                                          \
    X(stream_query, "cuStreamQuery", (void *stream))                                               \
    X(stream_after, "cuStreamWaitEvent", (void *stream, void *event, unsigned flags))              \
    X(event_create, "cuEventCreate", (void **event, unsigned flags))                               \
    X(event_destroy, "cuEventDestroy_v2", (void *event))                                           \
    X(event_record, "cuEventRecord", (void *event, void *stream))                                  \
    X(event_query, "cuEventQuery", (void *event))                                                  \
    X(event_wait, "cuEventSynchronize", (void *event))                                             \
    X(event_elapsed, "cuEventElapsedTime", (float *ms, void *start, void *end))                    \
    X(module_load, "cuModuleLoadData", (void **module, const void *image))                         \
    X(module_function, "cuModuleGetFunction", (void **function, void *module, const char *name))   \
    X(launch, "cuLaunchKernel",                                                                    \
      (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,        \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **parameters, \
       void **extra))                                                                              \
    X(capture_begin, "cuStreamBeginCapture_v2", (void *stream, int mode))                          \
    X(capture_end, "cuStreamEndCapture", (void *stream, void **graph))                             \
    X(graph_instantiate, "cuGraphInstantiateWithFlags",                                            \
      (void **exec, void *graph, uint64_t flags))                                                  \
    X(graph_launch, "cuGraphLaunch", (void *exec, void *stream))                                   \
    X(graph_destroy, "cuGraphDestroy", (void *graph))                                              \
    X(exec_destroy, "cuGraphExecDestroy", (void *exec))                                            \
    X(proc_address, "cuGetProcAddress_v2",                                                         \
      (const char *symbol, void **function, int version, uint64_t flags, int *status))

struct gpu_driver {
#define GPU_FIELD(field, symbol, parameters) int(*field) parameters;
    GPU_CALLS(GPU_FIELD)
#undef GPU_FIELD
    void *library;
    int device;
    void *context;
};

extern struct gpu_driver gpu;

/* Loads the driver and calls init(). Ends the program as skipped, with the reason, if there is no
 * driver or no device. */
void gpu_load(void);

/* The same, and makes the primary context of the first device current. */
void gpu_open(void);

/* What is free on the device, by the driver. */
size_t gpu_free_bytes(void);

/* Ends the program, saying which call failed and by which code, if `code` is not GPU_OK. */
void gpu_must(int code, const char *call);

/* CUDA's name of the code, or "?" */
const char *gpu_error_name(int code);

#endif
