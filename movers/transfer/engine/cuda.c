/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of a GPU: CUDA's driver, if there is one, hands out a DMA buffer for it. Nothing of CUDA
 * is needed to build this. Source: CUDA Driver API, cuMemGetHandleForAddressRange.
 */
#include <dlfcn.h>
#include <unistd.h>

#include "transfer/engine/agent.h"
#include "transfer/engine/memory.h"
#include "transfer/engine/status.h"

enum { CUDA_PAGE = 65536, HANDLE_IS_DMABUF = 1 };

typedef int get_handle(void *handle, uint64_t pointer, size_t bytes, int kind,
                       unsigned long long flags);

enum sw_xfer_status sw_xfer_memory_cuda(struct sw_xfer_agent *agent, uint64_t device_pointer,
                                        uint64_t bytes, struct sw_xfer_error *error,
                                        struct sw_xfer_memory **memory)
{
    int fd = -1;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); /* stays: the program's */
    if (!driver)
        return xfe_fail(error, SW_XFER_NOT_SUPPORTED, "there is no CUDA driver on this host");
    get_handle *handle_of = (get_handle *)dlsym(driver, "cuMemGetHandleForAddressRange");
    /* The driver hands out whole pages, so the buffer begins at or before the pointer. */
    const uint64_t begin = device_pointer / CUDA_PAGE * CUDA_PAGE;
    const uint64_t end = (device_pointer + bytes + CUDA_PAGE - 1) / CUDA_PAGE * CUDA_PAGE;
    if (!handle_of || handle_of(&fd, begin, end - begin, HANDLE_IS_DMABUF, 0))
        return xfe_fail(error, SW_XFER_NOT_SUPPORTED,
                        "the CUDA driver hands out no DMA buffer for this address");
    const enum sw_xfer_status status =
        sw_xfer_memory_dmabuf(agent, fd, device_pointer - begin, bytes, error, memory);
    close(fd);
    if (!status)
        (*memory)->kind = SW_XFER_CUDA;
    return status;
}
