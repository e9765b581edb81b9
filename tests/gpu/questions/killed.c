/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long after SIGKILL a process's memory is given back: idle, and in the middle of a kernel. The
 * other process takes 1 GiB, or an eighth of what is free; this one looks at what is free until it
 * is there again.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "gpu/common/answer.h"
#include "gpu/common/driver.h"
#include "gpu/common/kernels.h"
#include "gpu/common/nvml.h"
#include "gpu/common/peer.h"
#include "gpu/common/samples.h"

#define GIB ((size_t)1 << 30)
#define PATIENCE_NS 10000000000ull
#define BRIEF_PATIENCE_NS 10000000ull
#define KERNEL_NS 200000000ull

static int run_owner(bool is_busy)
{
    struct peer_note note = {0};
    struct kernels kernels;
    gpu_pointer pointer = 0;
    gpu_open();
    size_t bytes = gpu_free_bytes() / 8;
    bytes = is_brief() ? 1 << 20 : bytes < GIB ? bytes : GIB;
    note.code = gpu.alloc(&pointer, bytes);
    note.number[0] = bytes;
    if (is_busy && !note.code) {
        kernels_load(&kernels);
        note.code = kernels_spin(&kernels, NULL, KERNEL_NS, pointer);
    }
    peer_send(PEER_SOCKET, &note, -1);
    peer_receive(PEER_SOCKET, &note, NULL); /* never comes: it is killed */
    return 0;
}

static void answer_return(const char *role, uint64_t bytes, uint64_t killed_ns, uint64_t reaped_ns,
                          size_t before, uint64_t used_before)
{
    const uint64_t patience_ns = is_brief() ? BRIEF_PATIENCE_NS : PATIENCE_NS;
    uint64_t free_ns = 0, nvml_ns = 0, now = killed_ns;
    size_t free_bytes = 0;
    while ((!free_ns || !nvml_ns) && now - killed_ns < patience_ns) {
        free_bytes = gpu_free_bytes();
        now = clock_ns();
        if (!free_ns && free_bytes + 64 * 1024 * 1024 >= before)
            free_ns = now;
        if (!nvml_ns && nvml_used_bytes() <= used_before + 64 * 1024 * 1024)
            nvml_ns = now;
        clock_sleep(200000);
    }
    answer_begin("given_back");
    answer_text("owner", role);
    answer_number("bytes", bytes);
    answer_number("reaped_after_ns", reaped_ns - killed_ns);
    if (free_ns)
        answer_number("mem_info_after_ns", free_ns - killed_ns);
    if (nvml_ns)
        answer_number("nvml_after_ns", nvml_ns - killed_ns);
    answer_signed("mem_info_missing", (int64_t)(before - free_bytes));
    answer_end();
}

static void ask_role(const char *role)
{
    struct peer peer;
    struct peer_note note;
    const size_t before = gpu_free_bytes();
    const uint64_t used = nvml_used_bytes();
    peer_start(&peer, role);
    peer_expect(peer.socket, &note, NULL);
    answer_begin("owner");
    answer_text("owner", role);
    answer_code("code", note.code);
    answer_signed("mem_info_took", (int64_t)(before - gpu_free_bytes()));
    nvml_answer_memory("nvml_used", (uint32_t)peer.pid);
    answer_end();
    const uint64_t start = clock_ns();
    peer_end(&peer, SIGKILL);
    answer_return(role, note.number[0], start, clock_ns(), before, used);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return run_owner(!strcmp(argv[1], "busy"));
    gpu_open();
    nvml_open();
    ask_role("idle");
    ask_role("busy");
    return 0;
}
