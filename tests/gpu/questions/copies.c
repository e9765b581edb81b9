/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies of 8 B to 1 GiB: within the device, to memory of another process, and to and from pinned,
 * registered and pageable memory of the host. Each by a call that waits, by a stream that is waited
 * for, and timed by events: the median and the rest of all times, from which rates follow.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpu/common/answer.h"
#include "gpu/common/peer.h"
#include "gpu/common/samples.h"
#include "gpu/common/shared.h"

#define GIB ((size_t)1 << 30)
#define BUDGET_NS 150000000ull /* of one size, path and way */

enum { COUNT_MAX = 200, BRIEF_BYTES = 65536 };

enum way { WAY_CALL, WAY_STREAM, WAY_EVENT, WAYS };
enum path { WITHIN, TO_PEER, FROM_PEER, FROM_PINNED, TO_PINNED, FROM_PAGEABLE, TO_PAGEABLE, PATHS };

static const char *const ways[] = {"call", "stream", "event"};
static const char *const paths[] = {
    "device to device",   "device to another process", "another process to device",
    "pinned to device",   "device to pinned",          "pageable to device",
    "device to pageable",
};

static struct {
    gpu_pointer first, second, peers;
    char *pinned, *pageable;
    void *stream, *begin, *end;
    size_t bytes;
} mem;

static int copy_by_call(enum path path, size_t bytes)
{
    switch (path) {
    case WITHIN:
        return gpu.within(mem.second, mem.first, bytes);
    case TO_PEER:
        return gpu.within(mem.peers, mem.first, bytes);
    case FROM_PEER:
        return gpu.within(mem.first, mem.peers, bytes);
    case FROM_PINNED:
        return gpu.to_device(mem.first, mem.pinned, bytes);
    case TO_PINNED:
        return gpu.to_host(mem.pinned, mem.first, bytes);
    case FROM_PAGEABLE:
        return gpu.to_device(mem.first, mem.pageable, bytes);
    case TO_PAGEABLE:
        return gpu.to_host(mem.pageable, mem.first, bytes);
    case PATHS:
        break;
    }
    return GPU_INVALID_VALUE;
}

static int copy_by_stream(enum path path, size_t bytes)
{
    switch (path) {
    case WITHIN:
        return gpu.within_async(mem.second, mem.first, bytes, mem.stream);
    case TO_PEER:
        return gpu.within_async(mem.peers, mem.first, bytes, mem.stream);
    case FROM_PEER:
        return gpu.within_async(mem.first, mem.peers, bytes, mem.stream);
    case FROM_PINNED:
        return gpu.to_device_async(mem.first, mem.pinned, bytes, mem.stream);
    case TO_PINNED:
        return gpu.to_host_async(mem.pinned, mem.first, bytes, mem.stream);
    case FROM_PAGEABLE:
        return gpu.to_device_async(mem.first, mem.pageable, bytes, mem.stream);
    case TO_PAGEABLE:
        return gpu.to_host_async(mem.pageable, mem.first, bytes, mem.stream);
    case PATHS:
        break;
    }
    return GPU_INVALID_VALUE;
}

/* `posted`: when the call returned, though the copy may go on. A copy within the device may return
 * early even from the call that has no stream, so that one waits for the context. */
static int time_copy(enum path path, enum way way, size_t bytes, uint64_t *ns, uint64_t *posted)
{
    float ms = 0;
    const uint64_t start = clock_ns();
    int code;
    if (way == WAY_CALL) {
        code = copy_by_call(path, bytes);
        *posted = clock_ns() - start;
        gpu.context_wait();
    } else {
        if (way == WAY_EVENT)
            gpu.event_record(mem.begin, mem.stream);
        code = copy_by_stream(path, bytes);
        if (way == WAY_EVENT)
            gpu.event_record(mem.end, mem.stream);
        *posted = clock_ns() - start;
        gpu.stream_wait(mem.stream);
    }
    *ns = clock_ns() - start;
    if (way == WAY_EVENT && !gpu.event_elapsed(&ms, mem.begin, mem.end))
        *ns = (uint64_t)(ms * 1e6f);
    return code;
}

static void ask_copy(const char *name, enum path path, enum way way, size_t bytes)
{
    static struct samples times, calls;
    uint64_t ns = 0, posted = 0;
    times.count = calls.count = 0;
    int code = time_copy(path, way, bytes, &ns, &posted); /* warms up */
    const uint64_t start = clock_ns();
    for (int i = 0; i < COUNT_MAX && !code; i++) {
        code = time_copy(path, way, bytes, &ns, &posted);
        samples_add(&times, ns);
        samples_add(&calls, posted);
        if (i >= 4 && clock_ns() - start > (is_brief() ? 0 : BUDGET_NS))
            break;
    }
    answer_begin("copy");
    answer_text("path", name);
    answer_text("way", ways[way]);
    answer_number("bytes", bytes);
    answer_code("code", code);
    samples_answer(&times, "copy");
    answer_number("posted_median_ns", samples_median(&calls));
    answer_end();
}

static void ask_path(enum path path, size_t bytes_max)
{
    static const size_t sizes[] = {8,      64,      512,      4096,      32768,
                                   262144, 2 << 20, 16 << 20, 128 << 20, GIB};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && sizes[i] <= bytes_max; i++)
        for (enum way way = 0; way < WAYS; way++)
            if (sizes[i] < 16 << 20 || way == WAY_EVENT)
                ask_copy(paths[path], path, way, sizes[i]);
}

static int run_owner(void)
{
    struct peer_note note;
    struct shared shared;
    gpu_open();
    peer_expect(PEER_SOCKET, &note, NULL);
    note.code = shared_make(&shared, SHARED_IPC, note.number[0]);
    if (!note.code)
        note.code = shared_export(&shared);
    note.handle = shared.handle;
    peer_send(PEER_SOCKET, &note, -1);
    peer_receive(PEER_SOCKET, &note, NULL);
    return 0;
}

static void ask_peer(struct peer *peer)
{
    struct peer_note note = {.number = {mem.bytes}};
    struct shared shared;
    peer_send(peer->socket, &note, -1);
    if (!peer_receive(peer->socket, &note, NULL) || note.code ||
        shared_open(&shared, SHARED_IPC, mem.bytes, -1, &note.handle))
        return;
    mem.peers = shared.pointer;
    ask_path(TO_PEER, mem.bytes);
    ask_path(FROM_PEER, mem.bytes);
    shared_close(&shared);
}

static void make_memory(void)
{
    const size_t spare = gpu_free_bytes() / 8;
    mem.bytes = is_brief() ? BRIEF_BYTES : spare < GIB ? spare : GIB;
    gpu_must(gpu.alloc(&mem.first, mem.bytes), "cuMemAlloc");
    gpu_must(gpu.alloc(&mem.second, mem.bytes), "cuMemAlloc");
    const uint64_t start = clock_ns();
    gpu_must(gpu.host_alloc((void **)&mem.pinned, mem.bytes, 0), "cuMemHostAlloc");
    answer_begin("pinned");
    answer_number("bytes", mem.bytes);
    answer_number("ns", clock_ns() - start);
    answer_end();
    mem.pageable =
        mmap(NULL, mem.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mem.pageable == MAP_FAILED)
        answer_skip("no memory on the host");
    memset(mem.pageable, 1, mem.bytes);
    gpu_must(gpu.stream_create(&mem.stream, GPU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
    gpu_must(gpu.event_create(&mem.begin, GPU_EVENT_DEFAULT), "cuEventCreate");
    gpu_must(gpu.event_create(&mem.end, GPU_EVENT_DEFAULT), "cuEventCreate");
}

/* Pageable memory that is registered: the time of it, and the same copies. */
static void ask_registered(void)
{
    uint64_t start = clock_ns();
    const int code = gpu.host_register(mem.pageable, mem.bytes, 0);
    answer_begin("register");
    answer_number("bytes", mem.bytes);
    answer_code("code", code);
    answer_number("ns", clock_ns() - start);
    answer_end();
    if (code)
        return;
    for (enum way way = 0; way < WAYS; way++) {
        ask_copy("registered to device", FROM_PAGEABLE, way, 4096);
        ask_copy("registered to device", FROM_PAGEABLE, way, mem.bytes);
    }
    start = clock_ns();
    gpu.host_unregister(mem.pageable);
    answer_begin("unregister");
    answer_number("ns", clock_ns() - start);
    answer_end();
}

int main(int argc, char **argv)
{
    struct peer peer;
    (void)argv;
    if (argc > 1)
        return run_owner();
    gpu_open();
    peer_start(&peer, "owner");
    make_memory();
    ask_path(WITHIN, mem.bytes);
    ask_path(FROM_PINNED, mem.bytes);
    ask_path(TO_PINNED, mem.bytes);
    ask_peer(&peer);
    peer_end(&peer, SIGKILL);
    ask_path(FROM_PAGEABLE, mem.bytes);
    ask_path(TO_PAGEABLE, mem.bytes);
    ask_registered();
    return 0;
}
