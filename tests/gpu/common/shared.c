/* SPDX-License-Identifier: BSD-2-Clause */
#include "gpu/common/shared.h"

#include <string.h>
#include <unistd.h>

#include "gpu/common/answer.h"
#include "gpu/common/samples.h"

const char *shared_name(enum shared_kind kind)
{
    static const char *const names[] = {"ipc", "vmm", "pool"};
    return names[kind];
}

struct gpu_allocation shared_properties(uint32_t handle)
{
    return (struct gpu_allocation){
        .type = GPU_PINNED, .handles = handle, .location = {GPU_ON_DEVICE, gpu.device}};
}

static uint64_t step_start;
static enum shared_kind step_kind;

/* Answers for a call that began when the last one ended. */
static int tell_step(const char *call, int code)
{
    const uint64_t ns = clock_ns() - step_start;
    answer_begin("step");
    answer_text("kind", shared_name(step_kind));
    answer_text("call", call);
    answer_code("code", code);
    answer_number("ns", ns);
    answer_end();
    step_start = clock_ns();
    return code;
}

static void begin_steps(const struct shared *shared)
{
    step_kind = shared->kind;
    step_start = clock_ns();
}

static int map_made(struct shared *shared)
{
    const struct gpu_access access = {{GPU_ON_DEVICE, gpu.device}, GPU_READ_WRITE};
    int code =
        tell_step("cuMemAddressReserve", gpu.reserve(&shared->pointer, shared->len_bytes, 0, 0, 0));
    if (!code)
        code =
            tell_step("cuMemMap", gpu.map(shared->pointer, shared->len_bytes, 0, shared->made, 0));
    if (!code)
        code = tell_step("cuMemSetAccess",
                         gpu.set_access(shared->pointer, shared->len_bytes, &access, 1));
    return code;
}

static int make_pool(struct shared *shared)
{
    const struct gpu_pool_properties wanted = {.type = GPU_PINNED,
                                               .handles = GPU_HANDLE_DESCRIPTOR,
                                               .location = {GPU_ON_DEVICE, gpu.device}};
    int code = tell_step("cuMemPoolCreate", gpu.pool_create(&shared->pool, &wanted));
    if (!code)
        code = tell_step("cuMemAllocFromPoolAsync",
                         gpu.pool_alloc(&shared->pointer, shared->len_bytes, shared->pool, NULL));
    return code ? code : tell_step("cuCtxSynchronize", gpu.context_wait());
}

int shared_make(struct shared *shared, enum shared_kind kind, size_t bytes)
{
    const struct gpu_allocation wanted = shared_properties(GPU_HANDLE_DESCRIPTOR);
    *shared = (struct shared){.kind = kind, .len_bytes = bytes, .fd = -1};
    begin_steps(shared);
    if (kind == SHARED_IPC)
        return tell_step("cuMemAlloc", gpu.alloc(&shared->pointer, bytes));
    if (kind == SHARED_POOL)
        return make_pool(shared);
    const int code = tell_step("cuMemCreate", gpu.create(&shared->made, bytes, &wanted, 0));
    return code ? code : map_made(shared);
}

int shared_export(struct shared *shared)
{
    begin_steps(shared);
    if (shared->kind == SHARED_IPC)
        return tell_step("cuIpcGetMemHandle", gpu.ipc_get(&shared->handle, shared->pointer));
    if (shared->kind == SHARED_VMM)
        return tell_step("cuMemExportToShareableHandle",
                         gpu.export(&shared->fd, shared->made, GPU_HANDLE_DESCRIPTOR, 0));
    const int code =
        tell_step("cuMemPoolExportToShareableHandle",
                  gpu.pool_export(&shared->fd, shared->pool, GPU_HANDLE_DESCRIPTOR, 0));
    return code ? code
                : tell_step("cuMemPoolExportPointer",
                            gpu.pool_export_pointer(&shared->handle, shared->pointer));
}

static int open_pool(struct shared *shared)
{
    const struct gpu_access access = {{GPU_ON_DEVICE, gpu.device}, GPU_READ_WRITE};
    int code = tell_step(
        "cuMemPoolImportFromShareableHandle",
        gpu.pool_import(&shared->pool, (void *)(intptr_t)shared->fd, GPU_HANDLE_DESCRIPTOR, 0));
    if (!code)
        tell_step("cuMemPoolSetAccess", gpu.pool_access(shared->pool, &access, 1));
    if (!code)
        code = tell_step("cuMemPoolImportPointer",
                         gpu.pool_import_pointer(&shared->pointer, shared->pool, &shared->handle));
    return code;
}

int shared_open(struct shared *shared, enum shared_kind kind, size_t bytes, int fd,
                const struct gpu_handle *handle)
{
    *shared = (struct shared){.kind = kind, .len_bytes = bytes, .fd = fd, .handle = *handle};
    begin_steps(shared);
    if (kind == SHARED_IPC)
        return tell_step("cuIpcOpenMemHandle",
                         gpu.ipc_open(&shared->pointer, *handle, GPU_IPC_LAZY_PEER));
    if (kind == SHARED_POOL)
        return open_pool(shared);
    const int code =
        tell_step("cuMemImportFromShareableHandle",
                  gpu.import(&shared->made, (void *)(intptr_t)fd, GPU_HANDLE_DESCRIPTOR));
    return code ? code : map_made(shared);
}

static int unmap_made(struct shared *shared)
{
    int code = tell_step("cuMemUnmap", gpu.unmap(shared->pointer, shared->len_bytes));
    const int second = tell_step("cuMemRelease", gpu.release(shared->made));
    const int third =
        tell_step("cuMemAddressFree", gpu.unreserve(shared->pointer, shared->len_bytes));
    code = code ? code : second;
    return code ? code : third;
}

static int free_pooled(struct shared *shared)
{
    const int code = tell_step("cuMemFreeAsync", gpu.free_async(shared->pointer, NULL));
    const int second = tell_step("cuCtxSynchronize", gpu.context_wait());
    const int third = tell_step("cuMemPoolDestroy", gpu.pool_destroy(shared->pool));
    return code ? code : second ? second : third;
}

int shared_close(struct shared *shared)
{
    begin_steps(shared);
    if (shared->kind == SHARED_IPC)
        return tell_step("cuIpcCloseMemHandle", gpu.ipc_close(shared->pointer));
    return shared->kind == SHARED_VMM ? unmap_made(shared) : free_pooled(shared);
}

int shared_free(struct shared *shared)
{
    begin_steps(shared);
    if (shared->fd >= 0)
        close(shared->fd);
    if (shared->kind == SHARED_IPC)
        return tell_step("cuMemFree", gpu.free(shared->pointer));
    return shared->kind == SHARED_VMM ? unmap_made(shared) : free_pooled(shared);
}
