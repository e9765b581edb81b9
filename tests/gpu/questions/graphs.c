/* SPDX-License-Identifier: BSD-2-Clause */
/* CUDA graphs: what capturing, making and launching one of 1 to 256 kernels costs beside launching
 * the kernels, and what of the driver is called by it: memory that is allocated in a capture. */
#include "gpu/common/answer.h"
#include "gpu/common/driver.h"
#include "gpu/common/kernels.h"
#include "gpu/common/samples.h"

enum { LAUNCHES = 50 };

static struct kernels kernels;
static gpu_pointer out;
static void *stream;

static void *make_graph(int count, void **graph)
{
    void *exec = NULL;
    const uint64_t start = clock_ns();
    gpu_must(gpu.capture_begin(stream, GPU_CAPTURE_RELAXED), "cuStreamBeginCapture");
    for (int i = 0; i < count; i++)
        gpu_must(kernels_spin(&kernels, stream, 1000, out), "cuLaunchKernel");
    gpu_must(gpu.capture_end(stream, graph), "cuStreamEndCapture");
    const uint64_t captured = clock_ns();
    const size_t before = gpu_free_bytes();
    const int code = gpu.graph_instantiate(&exec, *graph, 0);
    const uint64_t made = clock_ns();
    answer_begin("graph");
    answer_number("kernels", (uint64_t)count);
    answer_code("code", code);
    answer_number("capture_ns", captured - start);
    answer_number("instantiate_ns", made - captured);
    answer_signed("mem_info_took", (int64_t)(before - gpu_free_bytes()));
    answer_end();
    return code ? NULL : exec;
}

static void ask_count(int count)
{
    static struct samples posted, waited, bare_posted, bare_waited;
    void *graph = NULL, *exec = make_graph(count, &graph);
    posted.count = waited.count = bare_posted.count = bare_waited.count = 0;
    for (int i = 0; i < LAUNCHES && exec; i++) {
        uint64_t start = clock_ns();
        gpu_must(gpu.graph_launch(exec, stream), "cuGraphLaunch");
        samples_add(&posted, clock_ns() - start);
        gpu.stream_wait(stream);
        samples_add(&waited, clock_ns() - start);
        start = clock_ns();
        for (int n = 0; n < count; n++)
            kernels_spin(&kernels, stream, 1000, out);
        samples_add(&bare_posted, clock_ns() - start);
        gpu.stream_wait(stream);
        samples_add(&bare_waited, clock_ns() - start);
        if (is_brief())
            break;
    }
    answer_begin("launches");
    answer_number("kernels", (uint64_t)count);
    samples_answer(&posted, "graph_posted");
    samples_answer(&waited, "graph_waited");
    samples_answer(&bare_posted, "bare_posted");
    samples_answer(&bare_waited, "bare_waited");
    answer_end();
    gpu.exec_destroy(exec);
    gpu.graph_destroy(graph);
}

/* Allocation while a stream is captured: the kind that a memory limit must know of. */
static void ask_capture_alloc(void)
{
    void *graph = NULL, *pool = NULL;
    gpu_pointer pointer = 0, pooled = 0;
    if (gpu.pool_default(&pool, gpu.device) || gpu.capture_begin(stream, GPU_CAPTURE_RELAXED))
        return;
    const int alloc_code = gpu.alloc(&pointer, 1 << 20);
    const int pool_code = gpu.pool_alloc(&pooled, 1 << 20, pool, stream);
    const int free_code = pool_code ? GPU_OK : gpu.free_async(pooled, stream);
    const int end_code = gpu.capture_end(stream, &graph);
    answer_begin("capture_alloc");
    answer_code("alloc", alloc_code);
    answer_code("pool_alloc", pool_code);
    answer_code("free_async", free_code);
    answer_code("end", end_code);
    answer_end();
    if (!alloc_code)
        gpu.free(pointer);
    if (graph)
        gpu.graph_destroy(graph);
}

int main(void)
{
    gpu_open();
    kernels_load(&kernels);
    gpu_must(gpu.stream_create(&stream, GPU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
    gpu_must(gpu.alloc(&out, 64), "cuMemAlloc");
    ask_count(1);
    ask_count(16);
    if (!is_brief())
        ask_count(256);
    ask_capture_alloc();
    return 0;
}
