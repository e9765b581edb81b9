/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many streams copy side by side: one to sixteen streams that each copy the same amount, to the
 * device, from it, both ways, and within it. What one stream needs times their number, over what
 * all needed together, is how many ran at a time.
 */
#include "gpu/common/answer.h"
#include "gpu/common/driver.h"
#include "gpu/common/samples.h"

enum { MIB = 1 << 20, STREAMS = 16, ROUNDS = 5 };

enum direction { DOWN, UP, BOTH, INSIDE, DIRECTIONS };

static const char *const directions[] = {"to device", "to host", "both ways", "within device"};

static struct {
    void *streams[STREAMS];
    gpu_pointer memory;
    char *pinned;
    size_t each_bytes;
} all;

static int post_copy(enum direction direction, int i)
{
    const size_t offset = (size_t)i * all.each_bytes;
    if (direction == INSIDE)
        return gpu.within_async(all.memory + (STREAMS + (size_t)i) * all.each_bytes,
                                all.memory + offset, all.each_bytes, all.streams[i]);
    if (direction == DOWN || (direction == BOTH && i % 2))
        return gpu.to_device_async(all.memory + offset, all.pinned + offset, all.each_bytes,
                                   all.streams[i]);
    return gpu.to_host_async(all.pinned + offset, all.memory + offset, all.each_bytes,
                             all.streams[i]);
}

static void ask_streams(enum direction direction, int count)
{
    static struct samples times;
    int code = GPU_OK;
    times.count = 0;
    for (int round = 0; round < (is_brief() ? 1 : ROUNDS); round++) {
        const uint64_t start = clock_ns();
        for (int i = 0; i < count && !code; i++)
            code = post_copy(direction, i);
        for (int i = 0; i < count; i++)
            gpu.stream_wait(all.streams[i]);
        samples_add(&times, clock_ns() - start);
    }
    answer_begin("streams");
    answer_text("direction", directions[direction]);
    answer_number("count", (uint64_t)count);
    answer_number("each_bytes", all.each_bytes);
    answer_code("code", code);
    samples_answer(&times, "all");
    answer_end();
}

int main(void)
{
    static const int counts[] = {1, 2, 3, 4, 8, 16};
    gpu_open();
    all.each_bytes = is_brief() ? 65536 : 32 * (size_t)MIB;
    gpu_must(gpu.alloc(&all.memory, 2 * STREAMS * all.each_bytes), "cuMemAlloc");
    gpu_must(gpu.host_alloc((void **)&all.pinned, STREAMS * all.each_bytes, 0), "cuMemHostAlloc");
    for (int i = 0; i < STREAMS; i++)
        gpu_must(gpu.stream_create(&all.streams[i], GPU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
    for (enum direction direction = 0; direction < DIRECTIONS; direction++)
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
            ask_streams(direction, counts[i]);
    return 0;
}
