/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When bytes are seen: a kernel watches a word of the device, or of pinned memory, while a copy or
 * the processor writes it; the processor watches pinned memory while a kernel or a copy writes it.
 * The kernel runs until it has seen the word, for 200 ms at most.
 */
#include <string.h>

#include "gpu/common/answer.h"
#include "gpu/common/driver.h"
#include "gpu/common/kernels.h"
#include "gpu/common/samples.h"

enum { MIB = 1 << 20, BYTES = 4 * MIB, WORDS = BYTES / 8, ROUNDS = 50, BRIEF_ROUNDS = 3 };

#define LIMIT_NS 200000000ull

static struct {
    struct kernels kernels;
    gpu_pointer memory, pinned_by_device, out_by_device;
    volatile uint64_t *pinned, *out; /* out: of the kernels, in memory of the host */
    void *watching, *copying;
} all;

static int rounds(void)
{
    return is_brief() ? BRIEF_ROUNDS : ROUNDS;
}

/* Until the kernel says that it runs. */
static bool await_start(void)
{
    const uint64_t start = clock_ns();
    while (!all.out[0])
        if (clock_ns() - start > LIMIT_NS)
            return false;
    clock_sleep(20000);
    return true;
}

static int start_watch(gpu_pointer at, uint64_t value)
{
    memset((void *)all.out, 0, 64);
    return kernels_watch(&all.kernels, all.watching, at, value, LIMIT_NS, all.out_by_device);
}

/* A kernel that watches the last word of what is copied to the device by another stream. */
static void ask_kernel_sees_copy(size_t bytes)
{
    static struct samples until_seen, until_waited;
    uint64_t missed = 0;
    until_seen.count = until_waited.count = 0;
    for (int i = 1; i <= rounds(); i++) {
        const uint64_t value = (uint64_t)i << 32 | bytes;
        const size_t word = bytes / 8 - 1;
        if (start_watch(all.memory + 8 * word, value) || !await_start())
            break;
        all.pinned[word] = value;
        const uint64_t start = clock_ns();
        gpu.to_device_async(all.memory, (void *)all.pinned, bytes, all.copying);
        while (!all.out[1] && clock_ns() - start < LIMIT_NS)
            ;
        samples_add(&until_seen, clock_ns() - start);
        gpu.stream_wait(all.copying);
        samples_add(&until_waited, clock_ns() - start);
        gpu.stream_wait(all.watching);
        missed += all.out[2] != value;
    }
    answer_begin("kernel_sees_copy");
    answer_number("bytes", bytes);
    answer_number("missed", missed);
    samples_answer(&until_seen, "seen");
    samples_answer(&until_waited, "waited");
    answer_end();
}

/* A store of the processor to pinned memory, and how long until the kernel has answered: there and
 * back. */
static void ask_kernel_sees_store(void)
{
    static struct samples back;
    uint64_t missed = 0;
    back.count = 0;
    for (int i = 1; i <= rounds(); i++) {
        if (start_watch(all.pinned_by_device, (uint64_t)i) || !await_start())
            break;
        const uint64_t start = clock_ns();
        all.pinned[0] = (uint64_t)i;
        while (!all.out[1] && clock_ns() - start < LIMIT_NS)
            ;
        samples_add(&back, clock_ns() - start);
        gpu.stream_wait(all.watching);
        missed += all.out[2] != (uint64_t)i;
    }
    answer_begin("kernel_sees_store");
    answer_number("missed", missed);
    samples_answer(&back, "there_and_back");
    answer_end();
}

/* The processor watches the first and the last word while they are copied from the device, and asks
 * which is there first. */
static void ask_processor_sees_copy(size_t bytes)
{
    static struct samples first_seen, last_seen, waited;
    uint64_t last_before_first = 0;
    const size_t last = bytes / 8 - 1;
    first_seen.count = last_seen.count = waited.count = 0;
    for (int i = 1; i <= rounds(); i++) {
        uint64_t first_ns = 0, last_ns = 0;
        gpu.set(all.memory, (unsigned)i, bytes / 4);
        gpu.context_wait();
        all.pinned[0] = all.pinned[last] = 0;
        const uint64_t start = clock_ns();
        gpu.to_host_async((void *)all.pinned, all.memory, bytes, all.copying);
        while ((!first_ns || !last_ns) && clock_ns() - start < LIMIT_NS) {
            /* The last is read first: seen alone, it was there before. */
            const bool has_last = all.pinned[last], has_first = all.pinned[0];
            const uint64_t now = clock_ns() - start;
            last_before_first += has_last && !has_first && !last_ns;
            first_ns = has_first && !first_ns ? now : first_ns;
            last_ns = has_last && !last_ns ? now : last_ns;
        }
        gpu.stream_wait(all.copying);
        samples_add(&waited, clock_ns() - start);
        samples_add(&first_seen, first_ns);
        samples_add(&last_seen, last_ns);
    }
    answer_begin("processor_sees_copy");
    answer_number("bytes", bytes);
    answer_number("last_before_first", last_before_first);
    samples_answer(&first_seen, "first");
    samples_answer(&last_seen, "last");
    samples_answer(&waited, "waited");
    answer_end();
}

/* A kernel stores a word to pinned memory: from its launch until the processor sees it, and until
 * the stream is waited for. */
static void ask_processor_sees_store(void)
{
    static struct samples seen, waited;
    seen.count = waited.count = 0;
    for (int i = 1; i <= rounds(); i++) {
        all.pinned[0] = 0;
        const uint64_t start = clock_ns();
        if (kernels_store(&all.kernels, all.copying, all.pinned_by_device, (uint64_t)i))
            break;
        while (!all.pinned[0] && clock_ns() - start < LIMIT_NS)
            ;
        samples_add(&seen, clock_ns() - start);
        gpu.stream_wait(all.copying);
        samples_add(&waited, clock_ns() - start);
    }
    answer_begin("processor_sees_store");
    samples_answer(&seen, "seen");
    samples_answer(&waited, "waited");
    answer_end();
}

/* A kernel that begins after a copy on the same stream sees all of it. */
static void ask_order_of_stream(void)
{
    uint64_t sum = 0;
    gpu_must(gpu.set(all.out_by_device, 0, 16), "cuMemsetD32");
    for (size_t i = 0; i < WORDS; i++)
        all.pinned[i] = i;
    gpu.to_device_async(all.memory, (void *)all.pinned, BYTES, all.copying);
    const int code = kernels_sum(&all.kernels, all.copying, all.memory, WORDS, all.out_by_device);
    gpu.stream_wait(all.copying);
    sum = all.out[0];
    answer_begin("kernel_after_copy");
    answer_code("code", code);
    answer_number("is_whole", sum == (uint64_t)WORDS * (WORDS - 1) / 2);
    answer_end();
}

int main(void)
{
    gpu_open();
    kernels_load(&all.kernels);
    gpu_must(gpu.alloc(&all.memory, BYTES), "cuMemAlloc");
    gpu_must(gpu.host_alloc((void **)&all.pinned, BYTES, GPU_HOST_MAPPED), "cuMemHostAlloc");
    gpu_must(gpu.host_alloc((void **)&all.out, 4096, GPU_HOST_MAPPED), "cuMemHostAlloc");
    gpu_must(gpu.host_pointer(&all.pinned_by_device, (void *)all.pinned, 0),
             "cuMemHostGetDevicePointer");
    gpu_must(gpu.host_pointer(&all.out_by_device, (void *)all.out, 0), "cuMemHostGetDevicePointer");
    gpu_must(gpu.stream_create(&all.watching, GPU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
    gpu_must(gpu.stream_create(&all.copying, GPU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
    ask_kernel_sees_copy(8);
    ask_kernel_sees_copy(65536);
    ask_kernel_sees_copy(BYTES);
    ask_kernel_sees_store();
    ask_processor_sees_copy(16);
    ask_processor_sees_copy(65536);
    ask_processor_sees_copy(BYTES);
    ask_processor_sees_store();
    ask_order_of_stream();
    return 0;
}
