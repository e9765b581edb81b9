/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A stand-in for libcuda.so.1, on which the recorder shows without a GPU that it goes through all
 * of its questions. It says nothing of a real driver: all memory is memory of the processor, and
 * what is asked of a kernel is done by a thread. Memory lies in a memfd each, so that another
 * process can map it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include "gpu/common/driver.h"
#include "gpu/stub/memory.h"

#define STUB __attribute__((visibility("default")))

enum { CODE_OF_NAME_MAX = 1000, VERSION = 13000, STUB_CLASS = 0x41, PAGE = 2 << 20 };

/* What the recorder's tracer has to find: the allocation of an object of a class. */
static void call_kernel(void)
{
    unsigned words[12] = {[3] = STUB_CLASS};
    const int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2b, sizeof(words)), words);
    close(fd);
}

STUB int cuInit(unsigned flags)
{
    call_kernel();
    return flags ? GPU_INVALID_VALUE : GPU_OK;
}

STUB int cuDriverGetVersion(int *version)
{
    *version = VERSION;
    return GPU_OK;
}

STUB int cuGetErrorName(int code, const char **name)
{
    static char text[32];
    snprintf(text, sizeof(text), "STUB_%d", code);
    *name = text;
    return code < CODE_OF_NAME_MAX ? GPU_OK : GPU_INVALID_VALUE;
}

STUB int cuDeviceGetCount(int *count)
{
    *count = 1;
    return GPU_OK;
}

STUB int cuDeviceGet(int *device, int index)
{
    *device = index;
    return index ? GPU_INVALID_VALUE : GPU_OK;
}

STUB int cuDeviceGetName(char *name, int len, int device)
{
    snprintf(name, (size_t)len, "stub of a GPU %d", device);
    return GPU_OK;
}

STUB int cuDeviceGetUuid(void *uuid, int device)
{
    memset(uuid, device, 16);
    return GPU_OK;
}

STUB int cuDeviceGetPCIBusId(char *bus, int len, int device)
{
    snprintf(bus, (size_t)len, "0000:%02x:00.0", device);
    return GPU_OK;
}

STUB int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    *bytes = device ? 0 : STUB_TOTAL_BYTES;
    return GPU_OK;
}

STUB int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = device;
    return attribute < 120 ? GPU_OK : GPU_INVALID_VALUE;
}

STUB int cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = "context";
    return device ? GPU_INVALID_VALUE : GPU_OK;
}

STUB int cuDevicePrimaryCtxRelease_v2(int device)
{
    return device ? GPU_INVALID_VALUE : GPU_OK;
}

STUB int cuCtxCreate_v2(void **context, unsigned flags, int device)
{
    *context = "another";
    return flags || device ? GPU_INVALID_VALUE : GPU_OK;
}

STUB int cuCtxDestroy_v2(void *context)
{
    return context ? GPU_OK : GPU_INVALID_CONTEXT;
}

STUB int cuCtxSetCurrent(void *context)
{
    return context ? GPU_OK : GPU_INVALID_CONTEXT;
}

STUB int cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return GPU_OK;
}

STUB int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    *total = STUB_TOTAL_BYTES;
    *free_bytes = STUB_TOTAL_BYTES - stub_used_bytes();
    return GPU_OK;
}

STUB int cuMemAlloc_v2(gpu_pointer *pointer, size_t bytes)
{
    return bytes ? stub_alloc(pointer, bytes) : GPU_INVALID_VALUE;
}

STUB int cuMemFree_v2(gpu_pointer pointer)
{
    return pointer ? stub_free(pointer) : GPU_OK;
}

STUB int cuMemAllocManaged(gpu_pointer *pointer, size_t bytes, unsigned flags)
{
    return flags == GPU_MANAGED_GLOBAL ? stub_alloc(pointer, bytes) : GPU_INVALID_VALUE;
}

STUB int cuMemGetAddressRange_v2(gpu_pointer *base, size_t *bytes, gpu_pointer pointer)
{
    const struct stub_piece *piece = stub_piece_at(pointer);
    if (!piece)
        return GPU_INVALID_VALUE;
    *base = piece->pointer;
    *bytes = piece->len_bytes;
    return GPU_OK;
}

STUB int cuPointerGetAttribute(void *value, int attribute, gpu_pointer pointer)
{
    *(unsigned *)value = (unsigned)attribute;
    return stub_piece_at(pointer) ? GPU_OK : GPU_INVALID_VALUE;
}

STUB int cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    return flags > 7 ? GPU_INVALID_VALUE : stub_alloc((gpu_pointer *)pointer, bytes);
}

STUB int cuMemFreeHost(void *pointer)
{
    return stub_free((gpu_pointer)pointer);
}

STUB int cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags)
{
    return pointer && bytes && flags < 8 ? GPU_OK : GPU_INVALID_VALUE;
}

STUB int cuMemHostUnregister(void *pointer)
{
    return pointer ? GPU_OK : GPU_INVALID_VALUE;
}

STUB int cuMemHostGetDevicePointer_v2(gpu_pointer *pointer, void *host, unsigned flags)
{
    *pointer = (gpu_pointer)host;
    return flags ? GPU_INVALID_VALUE : GPU_OK;
}

STUB int cuMemGetAllocationGranularity(size_t *bytes, const struct gpu_allocation *wanted,
                                       int which)
{
    *bytes = PAGE;
    return wanted->handles == GPU_HANDLE_FABRIC || which > 1 ? GPU_NOT_SUPPORTED : GPU_OK;
}

STUB int cuMemAddressReserve(gpu_pointer *pointer, size_t bytes, size_t alignment, gpu_pointer at,
                             uint64_t flags)
{
    if (bytes % PAGE || at || flags || alignment)
        return GPU_INVALID_VALUE;
    void *where = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *pointer = (gpu_pointer)where;
    return where == MAP_FAILED ? GPU_OUT_OF_MEMORY : GPU_OK;
}

STUB int cuMemAddressFree(gpu_pointer pointer, size_t bytes)
{
    return munmap((void *)pointer, bytes) ? GPU_INVALID_VALUE : GPU_OK;
}

STUB int cuMemCreate(uint64_t *handle, size_t bytes, const struct gpu_allocation *wanted,
                     uint64_t flags)
{
    if (!bytes || bytes % PAGE || flags)
        return GPU_INVALID_VALUE;
    if (wanted->handles == GPU_HANDLE_FABRIC)
        return GPU_NOT_SUPPORTED;
    const int fd = bytes > STUB_TOTAL_BYTES - stub_used_bytes() ? -1 : stub_file(bytes);
    *handle = (uint64_t)(unsigned)fd;
    return fd < 0 ? GPU_OUT_OF_MEMORY : GPU_OK;
}

STUB int cuMemRelease(uint64_t handle)
{
    return close((int)handle) ? GPU_INVALID_VALUE : GPU_OK;
}

STUB int cuMemMap(gpu_pointer pointer, size_t bytes, size_t offset, uint64_t handle, uint64_t flags)
{
    void *mapped = flags ? MAP_FAILED
                         : mmap((void *)pointer, bytes, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_FIXED, (int)handle, (off_t)offset);
    return mapped == MAP_FAILED ? GPU_INVALID_VALUE : stub_know(pointer, bytes, -1);
}

STUB int cuMemUnmap(gpu_pointer pointer, size_t bytes)
{
    if (!stub_piece_at(pointer))
        return GPU_INVALID_VALUE;
    stub_forget(pointer);
    void *gone =
        mmap((void *)pointer, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return gone == MAP_FAILED ? GPU_INVALID_VALUE : GPU_OK;
}

STUB int cuMemSetAccess(gpu_pointer pointer, size_t bytes, const struct gpu_access *access,
                        size_t count)
{
    return bytes && access && count == 1 && stub_piece_at(pointer) ? GPU_OK : GPU_INVALID_VALUE;
}

STUB int cuMemExportToShareableHandle(void *shared, uint64_t handle, unsigned kind, uint64_t flags)
{
    const int fd = kind == GPU_HANDLE_DESCRIPTOR && !flags ? dup((int)handle) : -1;
    *(int *)shared = fd;
    return fd < 0 ? GPU_INVALID_VALUE : GPU_OK;
}

STUB int cuMemImportFromShareableHandle(uint64_t *handle, void *shared, unsigned kind)
{
    const int fd = kind == GPU_HANDLE_DESCRIPTOR ? dup((int)(intptr_t)shared) : -1;
    *handle = (uint64_t)(unsigned)fd;
    return fd < 0 ? GPU_INVALID_VALUE : GPU_OK;
}

STUB int cuMemGetHandleForAddressRange(void *handle, gpu_pointer pointer, size_t bytes, int kind,
                                       uint64_t flags)
{
    const struct stub_piece *piece = stub_piece_at(pointer);
    if (!piece || piece->fd < 0 || pointer % 4096 || bytes % 4096 || kind != GPU_RANGE_DMABUF ||
        flags > 1)
        return GPU_NOT_SUPPORTED;
    *(int *)handle = dup(piece->fd);
    return GPU_OK;
}

STUB int cuIpcGetMemHandle(struct gpu_handle *handle, gpu_pointer pointer)
{
    const struct stub_piece *piece = stub_piece_at(pointer);
    if (!piece || piece->fd < 0)
        return GPU_INVALID_VALUE;
    return stub_name(handle, piece);
}

STUB int cuIpcOpenMemHandle_v2(gpu_pointer *pointer, struct gpu_handle handle, unsigned flags)
{
    return flags == GPU_IPC_LAZY_PEER ? stub_open(pointer, &handle) : GPU_INVALID_VALUE;
}

STUB int cuIpcCloseMemHandle(gpu_pointer pointer)
{
    return stub_free(pointer);
}
