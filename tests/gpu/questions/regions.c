/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ibv_reg_mr() as it is today, under Sidewire: on memory of the device, managed, pinned and plain
 * memory of the host, with the GPU open and before; ibv_reg_dmabuf_mr() on what the driver hands
 * out. With SIDEWIRE_LOG=info the library says on the standard error which of it was adopted, and
 * why not.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/common/answer.h"
#include "gpu/common/driver.h"
#include "gpu/common/samples.h"

enum { BYTES = 2 << 20 };

static struct ibv_pd *pd;

static void answer_region(const char *memory, struct ibv_mr *mr, int error, uint64_t ns)
{
    answer_begin("region");
    answer_text("memory", memory);
    answer_errno("errno", mr ? 0 : -error);
    answer_number("ns", ns);
    answer_end();
    if (mr)
        ibv_dereg_mr(mr);
}

static void ask_region(const char *memory, void *pointer)
{
    static const int all =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    fprintf(stderr, "registering: %s\n", memory);
    const uint64_t start = clock_ns();
    errno = 0;
    struct ibv_mr *mr = ibv_reg_mr(pd, pointer, BYTES, all);
    answer_region(memory, mr, errno, clock_ns() - start);
}

static void ask_dmabuf(gpu_pointer pointer)
{
    int fd = -1;
    const int code = gpu.range_handle(&fd, pointer, BYTES, GPU_RANGE_DMABUF, 0);
    answer_begin("dmabuf");
    answer_code("code", code);
    answer_end();
    if (code)
        return;
    const uint64_t start = clock_ns();
    errno = 0;
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 0, BYTES, pointer, fd, IBV_ACCESS_LOCAL_WRITE);
    answer_region("DMA buffer", mr, errno, clock_ns() - start);
    close(fd);
}

static void *plain_memory(void)
{
    void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        answer_skip("no memory on the host");
    memset(memory, 1, BYTES);
    return memory;
}

static void open_device(void)
{
    int count = 0;
    struct ibv_device **devices = ibv_get_device_list(&count);
    struct ibv_context *context = devices && count ? ibv_open_device(devices[0]) : NULL;
    pd = context ? ibv_alloc_pd(context) : NULL;
    if (!pd)
        answer_skip("there is no RDMA device: %d devices, %s", count, strerror(errno));
    answer_begin("device");
    answer_text("name", ibv_get_device_name(devices[0]));
    answer_end();
}

int main(void)
{
    gpu_pointer pointer = 0, managed = 0;
    void *pinned = NULL;
    open_device();
    ask_region("plain, no GPU open", plain_memory());
    gpu_open();
    ask_region("plain, GPU open", plain_memory());
    if (!gpu.alloc(&pointer, BYTES)) {
        ask_region("device", (void *)pointer);
        ask_dmabuf(pointer);
    }
    if (gpu_free_bytes() / 4 > BYTES && !gpu.managed(&managed, BYTES, GPU_MANAGED_GLOBAL))
        ask_region("managed", (void *)managed);
    if (!gpu.host_alloc(&pinned, BYTES, GPU_HOST_MAPPED))
        ask_region("pinned", pinned);
    void *registered = plain_memory();
    if (!gpu.host_register(registered, BYTES, 0)) {
        ask_region("plain, registered with CUDA", registered);
        gpu.host_unregister(registered);
    }
    return 0;
}
