/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Virtual memory management: granularity by kind of handle, what a piece takes when it is created
 * and when it is mapped, how long each step lasts, which sizes and handles are refused.
 */
#include "gpu/common/answer.h"
#include "gpu/common/driver.h"
#include "gpu/common/nvml.h"
#include "gpu/common/samples.h"
#include "gpu/common/shared.h"

enum { MIB = 1 << 20 };

static const uint32_t handles[] = {GPU_HANDLE_NONE, GPU_HANDLE_DESCRIPTOR, GPU_HANDLE_FABRIC};

static size_t ask_granularity(uint32_t handle, bool is_rdma)
{
    size_t minimum = 0, recommended = 0;
    struct gpu_allocation wanted = shared_properties(handle);
    wanted.rdma_capable = is_rdma;
    const int code = gpu.granularity(&minimum, &wanted, GPU_GRANULARITY_MINIMUM);
    gpu.granularity(&recommended, &wanted, GPU_GRANULARITY_RECOMMENDED);
    answer_begin("granularity");
    answer_number("handle", handle);
    answer_number("rdma_capable", is_rdma);
    answer_code("code", code);
    answer_number("minimum", minimum);
    answer_number("recommended", recommended);
    answer_end();
    return minimum;
}

static void ask_create(uint32_t handle, size_t bytes, bool is_rdma)
{
    struct gpu_allocation wanted = shared_properties(handle);
    uint64_t made = 0;
    wanted.rdma_capable = is_rdma;
    const size_t before = gpu_free_bytes();
    const uint64_t used = nvml_used_bytes();
    const uint64_t start = clock_ns();
    const int code = gpu.create(&made, bytes, &wanted, 0);
    const uint64_t ns = clock_ns() - start;
    answer_begin("create");
    answer_number("handle", handle);
    answer_number("rdma_capable", is_rdma);
    answer_number("bytes", bytes);
    answer_code("code", code);
    answer_number("ns", ns);
    answer_signed("mem_info_took", (int64_t)(before - gpu_free_bytes()));
    answer_signed("nvml_took", (int64_t)(nvml_used_bytes() - used));
    answer_end();
    if (!code)
        gpu.release(made);
}

/* The steps of one piece, with what is free after each. */
static void ask_life(size_t bytes)
{
    const struct gpu_allocation wanted = shared_properties(GPU_HANDLE_DESCRIPTOR);
    const struct gpu_access access = {{GPU_ON_DEVICE, gpu.device}, GPU_READ_WRITE};
    gpu_pointer pointer = 0;
    uint64_t made = 0;
    static const char *const names[] = {"create",  "reserve", "map",      "set_access",
                                        "release", "unmap",   "unreserve"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const size_t before = gpu_free_bytes();
        const uint64_t start = clock_ns();
        const int code = i == 0   ? gpu.create(&made, bytes, &wanted, 0)
                         : i == 1 ? gpu.reserve(&pointer, bytes, 0, 0, 0)
                         : i == 2 ? gpu.map(pointer, bytes, 0, made, 0)
                         : i == 3 ? gpu.set_access(pointer, bytes, &access, 1)
                         : i == 4 ? gpu.release(made)
                         : i == 5 ? gpu.unmap(pointer, bytes)
                                  : gpu.unreserve(pointer, bytes);
        const uint64_t ns = clock_ns() - start;
        answer_begin("life");
        answer_text("step", names[i]);
        answer_number("bytes", bytes);
        answer_code("code", code);
        answer_number("ns", ns);
        answer_signed("mem_info_took", (int64_t)(before - gpu_free_bytes()));
        answer_end();
    }
}

static void answer_wrong(const char *step, int code)
{
    answer_begin("wrong_order");
    answer_text("step", step);
    answer_code("code", code);
    answer_end();
}

/* What is most likely to end the context, or the program, comes last. */
static void ask_wrong_order(size_t bytes)
{
    const struct gpu_access access = {{GPU_ON_DEVICE, gpu.device}, GPU_READ_WRITE};
    gpu_pointer pointer = 0;
    answer_wrong("reserve_odd", gpu.reserve(&pointer, bytes + 1, 0, 0, 0));
    answer_wrong("reserve", gpu.reserve(&pointer, bytes, 0, 0, 0));
    answer_wrong("access_unmapped", gpu.set_access(pointer, bytes, &access, 1));
    answer_wrong("unmap_unmapped", gpu.unmap(pointer, bytes));
    answer_wrong("set_unmapped", gpu.set(pointer, 0, 1));
    answer_wrong("map_of_no_handle", gpu.map(pointer, bytes, 0, 0x1234, 0));
    answer_wrong("unreserve", gpu.unreserve(pointer, bytes));
}

int main(void)
{
    gpu_open();
    nvml_open();
    size_t grain = 0;
    for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++) {
        const size_t one = ask_granularity(handles[i], false);
        ask_granularity(handles[i], true);
        grain = i == 1 ? one : grain;
    }
    grain = grain ? grain : 2 * MIB;
    for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++) {
        ask_create(handles[i], grain, false);
        ask_create(handles[i], grain, true);
    }
    ask_create(GPU_HANDLE_DESCRIPTOR, grain / 2, false);
    ask_create(GPU_HANDLE_DESCRIPTOR, grain + 1, false);
    ask_create(GPU_HANDLE_DESCRIPTOR, 0, false);
    ask_create(GPU_HANDLE_DESCRIPTOR, (gpu_free_bytes() / grain + 8) * grain, false);
    ask_life(grain);
    if (!is_brief())
        ask_life(512 * (size_t)MIB);
    ask_wrong_order(grain);
    return 0;
}
