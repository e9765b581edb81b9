/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How finely events tell time, and the device's timer; what recording, asking and waiting cost; how
 * well an event agrees with a kernel of a known length.
 */

#include "gpu/common/answer.h"
#include "gpu/common/driver.h"
#include "gpu/common/kernels.h"
#include "gpu/common/samples.h"

enum { EVENTS = 200, TICKS = 512 };

static void *stream;
static struct kernels kernels;
static gpu_pointer out;

static uint64_t elapsed_ns(void *begin, void *end)
{
    float ms = 0;
    return gpu.event_elapsed(&ms, begin, end) ? 0 : (uint64_t)(ms * 1e6f + 0.5f);
}

/* Events one after another, with nothing between: their distances, and the least that is not 0. */
static void ask_fineness(void)
{
    static void *events[EVENTS];
    static struct samples records, distances;
    uint64_t least = UINT64_MAX, zeros = 0;
    for (int i = 0; i < EVENTS; i++)
        gpu_must(gpu.event_create(&events[i], GPU_EVENT_DEFAULT), "cuEventCreate");
    for (int i = 0; i < EVENTS; i++) {
        const uint64_t start = clock_ns();
        gpu_must(gpu.event_record(events[i], stream), "cuEventRecord");
        samples_add(&records, clock_ns() - start);
    }
    gpu_must(gpu.stream_wait(stream), "cuStreamSynchronize");
    for (int i = 1; i < EVENTS; i++) {
        const uint64_t ns = elapsed_ns(events[i - 1], events[i]);
        samples_add(&distances, ns);
        zeros += !ns;
        least = ns && ns < least ? ns : least;
    }
    answer_begin("events");
    samples_answer(&records, "record");
    samples_answer(&distances, "device_distance");
    answer_number("device_least_ns", least == UINT64_MAX ? 0 : least);
    answer_number("zeros", zeros);
    answer_end();
    for (int i = 0; i < EVENTS; i++)
        gpu.event_destroy(events[i]);
}

static void ask_timer(void)
{
    static uint64_t ticks[TICKS];
    static struct samples steps;
    gpu_must(kernels_ticks(&kernels, stream, TICKS, out), "cuLaunchKernel");
    gpu_must(gpu.stream_wait(stream), "cuStreamSynchronize");
    gpu_must(gpu.to_host(ticks, out, sizeof(ticks)), "cuMemcpyDtoH");
    for (int i = 1; i < TICKS; i++)
        samples_add(&steps, ticks[i] - ticks[i - 1]);
    answer_begin("globaltimer");
    samples_answer(&steps, "device_step");
    answer_number("device_now_ns", ticks[TICKS - 1]);
    answer_number("processor_now_ns", clock_ns());
    answer_end();
}

static void ask_kernel(uint64_t ns)
{
    void *begin = NULL, *end = NULL;
    uint64_t stamps[2] = {0};
    gpu_must(gpu.event_create(&begin, GPU_EVENT_DEFAULT), "cuEventCreate");
    gpu_must(gpu.event_create(&end, GPU_EVENT_DEFAULT), "cuEventCreate");
    const uint64_t start = clock_ns();
    gpu.event_record(begin, stream);
    const int code = kernels_spin(&kernels, stream, ns, out);
    gpu.event_record(end, stream);
    const uint64_t posted = clock_ns() - start;
    gpu_must(gpu.event_wait(end), "cuEventSynchronize");
    const uint64_t waited = clock_ns() - start;
    gpu.to_host(stamps, out, sizeof(stamps));
    answer_begin("kernel");
    answer_number("wanted_ns", ns);
    answer_code("code", code);
    answer_number("device_stamps_ns", stamps[1] - stamps[0]);
    answer_number("device_events_ns", elapsed_ns(begin, end));
    answer_number("posted_ns", posted);
    answer_number("waited_ns", waited);
    answer_end();
    gpu.event_destroy(begin);
    gpu.event_destroy(end);
}

/* What it costs to ask for an event that has happened, and one that has not. */
static void ask_queries(void)
{
    static struct samples ready, unready, stream_queries;
    void *event = NULL;
    gpu_must(gpu.event_create(&event, GPU_EVENT_NO_TIMING), "cuEventCreate");
    kernels_spin(&kernels, stream, 2000000, out);
    gpu.event_record(event, stream);
    for (int i = 0; i < EVENTS; i++) {
        uint64_t start = clock_ns();
        const int code = gpu.event_query(event);
        samples_add(code == GPU_NOT_READY ? &unready : &ready, clock_ns() - start);
        start = clock_ns();
        gpu.stream_query(stream);
        samples_add(&stream_queries, clock_ns() - start);
    }
    gpu_must(gpu.stream_wait(stream), "cuStreamSynchronize");
    for (int i = 0; i < EVENTS; i++) {
        const uint64_t start = clock_ns();
        gpu.event_query(event);
        samples_add(&ready, clock_ns() - start);
    }
    answer_begin("queries");
    samples_answer(&unready, "unready");
    samples_answer(&ready, "ready");
    samples_answer(&stream_queries, "stream");
    answer_end();
}

int main(void)
{
    static const uint64_t lengths_ns[] = {1000, 10000, 100000, 1000000, 10000000};
    gpu_open();
    kernels_load(&kernels);
    gpu_must(gpu.stream_create(&stream, GPU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
    gpu_must(gpu.alloc(&out, TICKS * sizeof(uint64_t)), "cuMemAlloc");
    ask_fineness();
    ask_timer();
    for (size_t i = 0; i < sizeof(lengths_ns) / sizeof(lengths_ns[0]); i++)
        ask_kernel(lengths_ns[i]);
    ask_queries();
    return 0;
}
