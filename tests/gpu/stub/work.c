/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the stub's device does: copies at once, a kernel by a thread of its stream, for which the
 * next thing on that stream waits. Functions of a captured graph are not kept: launching it does
 * nothing.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/common/clock.h"
#include "gpu/common/driver.h"
#include "gpu/stub/memory.h"

#define STUB __attribute__((visibility("default")))

enum { PARAMETERS_MAX = 4 };

struct stub_stream {
    pthread_mutex_t lock;
    pthread_t thread;
    bool has_thread, is_capturing;
    volatile int is_busy;
};

struct stub_launch {
    struct stub_stream *stream;
    const char *name;
    uint64_t parameters[PARAMETERS_MAX];
};

static struct stub_stream default_stream = {.lock = PTHREAD_MUTEX_INITIALIZER};
static const char *const functions[] = {"spin", "store", "watch", "ticks", "sum"};
static const int counts[] = {2, 2, 4, 2, 3};

static struct stub_stream *stream_of(void *stream)
{
    return stream ? stream : &default_stream;
}

static void settle_stream(void *handle)
{
    struct stub_stream *stream = stream_of(handle);
    pthread_mutex_lock(&stream->lock);
    if (stream->has_thread)
        pthread_join(stream->thread, NULL);
    stream->has_thread = false;
    pthread_mutex_unlock(&stream->lock);
}

static void run_watch(const uint64_t *parameters)
{
    volatile uint64_t *at = (volatile uint64_t *)parameters[0], *out = (void *)parameters[3];
    uint64_t looks = 0, seen;
    out[0] = clock_ns();
    do {
        seen = *at;
        looks++;
    } while (seen != parameters[1] && clock_ns() - out[0] < parameters[2]);
    out[1] = clock_ns();
    out[2] = seen;
    out[3] = looks;
}

static void run_sum(const uint64_t *parameters)
{
    const uint64_t *from = (const uint64_t *)parameters[0];
    for (uint64_t i = 0; i < parameters[1]; i++)
        *(uint64_t *)parameters[2] += from[i];
}

static void run_function(const char *name, const uint64_t *parameters)
{
    uint64_t *out = (uint64_t *)parameters[1];
    if (name == functions[0]) {
        out[0] = clock_ns();
        clock_sleep(parameters[0]);
        out[1] = clock_ns();
    } else if (name == functions[1]) {
        *(volatile uint64_t *)parameters[0] = parameters[1];
    } else if (name == functions[2]) {
        run_watch(parameters);
    } else if (name == functions[3]) {
        for (uint64_t i = 0; i < parameters[0]; i++)
            out[i] = clock_ns();
    } else {
        run_sum(parameters);
    }
}

static void *run_launch(void *argument)
{
    struct stub_launch *launch = argument;
    run_function(launch->name, launch->parameters);
    launch->stream->is_busy = 0;
    free(launch);
    return NULL;
}

STUB int cuModuleLoadData(void **module, const void *image)
{
    *module = "module";
    return strstr(image, ".entry spin") ? GPU_OK : GPU_INVALID_VALUE;
}

STUB int cuModuleGetFunction(void **function, void *module, const char *name)
{
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        *function = (void *)functions[i];
        if (!strcmp(name, functions[i]))
            return module ? GPU_OK : GPU_INVALID_VALUE;
    }
    return GPU_NOT_FOUND;
}

STUB int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        void *handle, void **parameters, void **extra)
{
    struct stub_stream *stream = stream_of(handle);
    struct stub_launch *launch = calloc(1, sizeof(*launch));
    if (!launch || extra || shared_bytes || !grid_x || grid_y != 1 || grid_z != 1 || !block_x ||
        block_y != 1 || block_z != 1) {
        free(launch);
        return GPU_INVALID_VALUE;
    }
    if (stream->is_capturing) {
        free(launch);
        return GPU_OK;
    }
    settle_stream(handle);
    *launch = (struct stub_launch){.stream = stream, .name = function};
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        for (int n = 0; function == functions[i] && n < counts[i]; n++)
            memcpy(&launch->parameters[n], parameters[n], sizeof(uint64_t));
    pthread_mutex_lock(&stream->lock);
    stream->is_busy = 1;
    stream->has_thread = !pthread_create(&stream->thread, NULL, run_launch, launch);
    pthread_mutex_unlock(&stream->lock);
    return stream->has_thread ? GPU_OK : GPU_OUT_OF_MEMORY;
}

STUB int cuCtxSynchronize(void)
{
    settle_stream(NULL);
    return GPU_OK;
}

STUB int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
    struct stub_stream *made = calloc(1, sizeof(*made));
    if (!made || flags > 1 || priority > 0)
        return GPU_INVALID_VALUE;
    pthread_mutex_init(&made->lock, NULL);
    *stream = made;
    return GPU_OK;
}

STUB int cuStreamDestroy_v2(void *stream)
{
    settle_stream(stream);
    free(stream);
    return GPU_OK;
}

STUB int cuStreamSynchronize(void *stream)
{
    settle_stream(stream);
    return GPU_OK;
}

STUB int cuStreamQuery(void *stream)
{
    return stream_of(stream)->is_busy ? GPU_NOT_READY : GPU_OK;
}

STUB int cuStreamBeginCapture_v2(void *stream, int mode)
{
    stream_of(stream)->is_capturing = true;
    return mode > 2 ? GPU_INVALID_VALUE : GPU_OK;
}

STUB int cuStreamEndCapture(void *stream, void **graph)
{
    *graph = "graph";
    stream_of(stream)->is_capturing = false;
    return GPU_OK;
}

/* Copies are done when the call returns. */
static int copy_after(void *stream, void *to, const void *from, size_t bytes)
{
    settle_stream(stream);
    memcpy(to, from, bytes);
    return GPU_OK;
}

STUB int cuMemsetD32_v2(gpu_pointer to, unsigned value, size_t count)
{
    if (!stub_piece_at(to))
        return GPU_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        ((unsigned *)to)[i] = value;
    return GPU_OK;
}

STUB int cuMemcpyHtoD_v2(gpu_pointer to, const void *from, size_t bytes)
{
    return copy_after(NULL, (void *)to, from, bytes);
}

STUB int cuMemcpyDtoH_v2(void *to, gpu_pointer from, size_t bytes)
{
    return stub_piece_at(from) ? copy_after(NULL, to, (void *)from, bytes) : GPU_INVALID_VALUE;
}

STUB int cuMemcpyDtoD_v2(gpu_pointer to, gpu_pointer from, size_t bytes)
{
    return copy_after(NULL, (void *)to, (void *)from, bytes);
}

STUB int cuMemcpyHtoDAsync_v2(gpu_pointer to, const void *from, size_t bytes, void *stream)
{
    return copy_after(stream, (void *)to, from, bytes);
}

STUB int cuMemcpyDtoHAsync_v2(void *to, gpu_pointer from, size_t bytes, void *stream)
{
    return copy_after(stream, to, (void *)from, bytes);
}

STUB int cuMemcpyDtoDAsync_v2(gpu_pointer to, gpu_pointer from, size_t bytes, void *stream)
{
    return copy_after(stream, (void *)to, (void *)from, bytes);
}
