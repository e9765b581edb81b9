/* SPDX-License-Identifier: BSD-2-Clause */
/* The stub's events, pools, graphs, and its functions by name. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/common/clock.h"
#include "gpu/common/driver.h"
#include "gpu/stub/memory.h"

#define STUB __attribute__((visibility("default")))

int cuStreamSynchronize(void *stream);

STUB int cuEventCreate(void **event, unsigned flags)
{
    *event = calloc(1, sizeof(uint64_t));
    return *event && flags < 4 ? GPU_OK : GPU_INVALID_VALUE;
}

STUB int cuEventDestroy_v2(void *event)
{
    free(event);
    return GPU_OK;
}

STUB int cuEventRecord(void *event, void *stream)
{
    cuStreamSynchronize(stream);
    *(uint64_t *)event = clock_ns();
    return GPU_OK;
}

STUB int cuEventQuery(void *event)
{
    return *(uint64_t *)event ? GPU_OK : GPU_NOT_READY;
}

STUB int cuEventSynchronize(void *event)
{
    return event ? GPU_OK : GPU_INVALID_HANDLE;
}

STUB int cuEventElapsedTime(float *ms, void *start, void *end)
{
    *ms = (float)(*(uint64_t *)end - *(uint64_t *)start) / 1e6f;
    return GPU_OK;
}

STUB int cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    (void)stream;
    return event && !flags ? GPU_OK : GPU_INVALID_HANDLE;
}

STUB int cuDeviceGetDefaultMemPool(void **pool, int device)
{
    static uint64_t first;
    *pool = &first;
    return device ? GPU_INVALID_VALUE : GPU_OK;
}

STUB int cuMemPoolCreate(void **pool, const struct gpu_pool_properties *wanted)
{
    *pool = calloc(1, sizeof(uint64_t));
    return wanted->type == GPU_PINNED ? GPU_OK : GPU_INVALID_VALUE;
}

STUB int cuMemPoolDestroy(void *pool)
{
    free(pool);
    return GPU_OK;
}

STUB int cuMemPoolTrimTo(void *pool, size_t kept)
{
    return pool && !kept ? GPU_OK : GPU_INVALID_VALUE;
}

STUB int cuMemPoolGetAttribute(void *pool, int attribute, void *value)
{
    *(uint64_t *)value = pool ? stub_used_bytes() : 0;
    return attribute > 8 ? GPU_INVALID_VALUE : GPU_OK;
}

STUB int cuMemPoolSetAttribute(void *pool, int attribute, void *value)
{
    return pool && value && attribute == GPU_POOL_RELEASE_THRESHOLD ? GPU_OK : GPU_INVALID_VALUE;
}

STUB int cuMemPoolSetAccess(void *pool, const struct gpu_access *access, size_t count)
{
    return pool && access && count == 1 ? GPU_OK : GPU_INVALID_VALUE;
}

STUB int cuMemAllocFromPoolAsync(gpu_pointer *pointer, size_t bytes, void *pool, void *stream)
{
    (void)stream;
    return pool ? stub_alloc(pointer, bytes) : GPU_INVALID_VALUE;
}

STUB int cuMemFreeAsync(gpu_pointer pointer, void *stream)
{
    (void)stream;
    return stub_free(pointer);
}

STUB int cuMemPoolExportToShareableHandle(void *shared, void *pool, unsigned kind, uint64_t flags)
{
    const int fd = pool && kind == GPU_HANDLE_DESCRIPTOR && !flags ? stub_file(4096) : -1;
    *(int *)shared = fd;
    return fd < 0 ? GPU_INVALID_VALUE : GPU_OK;
}

STUB int cuMemPoolImportFromShareableHandle(void **pool, void *shared, unsigned kind,
                                            uint64_t flags)
{
    if (kind != GPU_HANDLE_DESCRIPTOR || flags || (intptr_t)shared < 0)
        return GPU_INVALID_VALUE;
    *pool = calloc(1, sizeof(uint64_t));
    return GPU_OK;
}

STUB int cuMemPoolExportPointer(struct gpu_handle *exported, gpu_pointer pointer)
{
    const struct stub_piece *piece = stub_piece_at(pointer);
    return piece ? stub_name(exported, piece) : GPU_INVALID_VALUE;
}

STUB int cuMemPoolImportPointer(gpu_pointer *pointer, void *pool, struct gpu_handle *exported)
{
    return pool ? stub_open(pointer, exported) : GPU_INVALID_VALUE;
}

STUB int cuGraphInstantiateWithFlags(void **exec, void *graph, uint64_t flags)
{
    *exec = graph;
    return flags ? GPU_INVALID_VALUE : GPU_OK;
}

STUB int cuGraphLaunch(void *exec, void *stream)
{
    (void)stream;
    return exec ? GPU_OK : GPU_INVALID_HANDLE;
}

STUB int cuGraphDestroy(void *graph)
{
    return graph ? GPU_OK : GPU_INVALID_HANDLE;
}

STUB int cuGraphExecDestroy(void *exec)
{
    return exec ? GPU_OK : GPU_INVALID_HANDLE;
}

STUB int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                             int *status)
{
    *function = version && flags < 3 ? dlsym(RTLD_DEFAULT, symbol) : NULL;
    *status = *function ? 0 : 1;
    return *function ? GPU_OK : GPU_NOT_FOUND;
}
