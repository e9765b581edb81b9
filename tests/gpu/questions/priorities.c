/* SPDX-License-Identifier: BSD-2-Clause */
/* Stream priorities: their range, and how long a short kernel waits beside long ones that fill the
 * device or one multiprocessor, at the least and at the greatest priority. */
#include "gpu/common/answer.h"
#include "gpu/common/driver.h"
#include "gpu/common/kernels.h"
#include "gpu/common/samples.h"

enum { ROUNDS = 20, BRIEF_ROUNDS = 2, FILL_BLOCKS = 4096, FILL_THREADS = 1024 };

#define LONG_NS 2000000ull

static struct kernels kernels;
static gpu_pointer out;

/* As many threads as no device has at a time, in several waves. */
static int fill_device(void *stream, uint64_t ns)
{
    gpu_pointer at = out;
    return gpu.launch(kernels.spin, is_brief() ? 1 : FILL_BLOCKS, 1, 1, FILL_THREADS, 1, 1, 0,
                      stream, (void *[]){&ns, &at}, NULL);
}

static void ask_priority(int priority, void *background, bool is_full)
{
    static struct samples waits;
    void *stream = NULL;
    waits.count = 0;
    int code = gpu.stream_create(&stream, GPU_STREAM_NON_BLOCKING, priority);
    for (int i = 0; i < (is_brief() ? BRIEF_ROUNDS : ROUNDS) && !code; i++) {
        code = is_full ? fill_device(background, LONG_NS)
                       : kernels_spin(&kernels, background, LONG_NS, out);
        clock_sleep(300000);
        const uint64_t start = clock_ns();
        kernels_spin(&kernels, stream, 1000, out + 64);
        gpu.stream_wait(stream);
        samples_add(&waits, clock_ns() - start);
        gpu.stream_wait(background);
    }
    answer_begin("priority");
    answer_signed("priority", priority);
    answer_number("is_full", is_full);
    answer_code("code", code);
    samples_answer(&waits, "short_kernel");
    answer_end();
    if (stream)
        gpu.stream_destroy(stream);
}

int main(void)
{
    int least = 0, greatest = 0;
    void *background = NULL;
    gpu_open();
    kernels_load(&kernels);
    gpu_must(gpu.alloc(&out, 4096), "cuMemAlloc");
    answer_begin("range");
    answer_code("code", gpu.priority_range(&least, &greatest));
    answer_signed("least", least);
    answer_signed("greatest", greatest);
    answer_end();
    gpu_must(gpu.stream_create(&background, GPU_STREAM_NON_BLOCKING, least), "cuStreamCreate");
    for (int is_full = 0; is_full < 2; is_full++) {
        ask_priority(least, background, is_full);
        ask_priority(greatest, background, is_full);
    }
    return 0;
}
