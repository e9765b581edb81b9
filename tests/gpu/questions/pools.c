/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory pools: what the default pool takes for pieces of several sizes, what it keeps when they
 * are freed, when the stream is waited for and when it is trimmed. */
#include "gpu/common/answer.h"
#include "gpu/common/driver.h"
#include "gpu/common/nvml.h"
#include "gpu/common/samples.h"

enum { MIB = 1 << 20, PIECES = 8 };

static const size_t sizes[] = {1, 512, 65537, MIB, 2 * MIB + 1, 33 * MIB};

static size_t free_before;
static uint64_t used_before;

static void answer_state(const char *step, size_t bytes, void *pool, int code)
{
    uint64_t reserved = 0, used = 0;
    gpu.pool_get(pool, GPU_POOL_RESERVED, &reserved);
    gpu.pool_get(pool, GPU_POOL_USED, &used);
    answer_begin("pool");
    answer_text("step", step);
    answer_number("bytes", bytes);
    answer_code("code", code);
    answer_number("reserved", reserved);
    answer_number("used", used);
    answer_signed("mem_info_took", (int64_t)(free_before - gpu_free_bytes()));
    answer_signed("nvml_took", (int64_t)(nvml_used_bytes() - used_before));
    answer_end();
}

static void ask_size(void *pool, void *stream, size_t bytes)
{
    gpu_pointer pieces[PIECES] = {0};
    static struct samples allocs;
    int code = GPU_OK;
    size_t count = 0;
    allocs.count = 0;
    free_before = gpu_free_bytes();
    used_before = nvml_used_bytes();
    for (; count < PIECES && !code; count += !code) {
        const uint64_t start = clock_ns();
        code = gpu.pool_alloc(&pieces[count], bytes, pool, stream);
        samples_add(&allocs, clock_ns() - start);
    }
    answer_state("allocated", bytes, pool, code);
    for (size_t i = 0; i < count; i++)
        code = gpu.free_async(pieces[i], stream);
    answer_state("freed", bytes, pool, code);
    answer_state("waited", bytes, pool, gpu.stream_wait(stream));
    answer_state("trimmed", bytes, pool, gpu.pool_trim(pool, 0));
    answer_begin("pool_alloc");
    answer_number("bytes", bytes);
    samples_answer(&allocs, "alloc");
    answer_end();
}

int main(void)
{
    void *pool = NULL, *stream = NULL;
    gpu_open();
    nvml_open();
    gpu_must(gpu.pool_default(&pool, gpu.device), "cuDeviceGetDefaultMemPool");
    gpu_must(gpu.stream_create(&stream, GPU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        ask_size(pool, stream, sizes[i]);
    return 0;
}
