/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * DMA buffers: which memory has one, how addresses and sizes must be aligned, which descriptor
 * comes; whether the processor can map it, read it and write it (that would be a BAR), how fast.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/common/answer.h"
#include "gpu/common/driver.h"
#include "gpu/common/samples.h"
#include "gpu/common/shared.h"

enum { MIB = 1 << 20, BYTES = 4 * MIB, MARK = 0x0b5e55ed, LOOKS = 200 };

static int ask_range(const char *memory, const char *why, gpu_pointer pointer, size_t bytes,
                     uint64_t flags)
{
    int fd = -1;
    const uint64_t start = clock_ns();
    const int code = gpu.range_handle(&fd, pointer, bytes, GPU_RANGE_DMABUF, flags);
    const uint64_t ns = clock_ns() - start;
    answer_begin("dmabuf");
    answer_text("memory", memory);
    answer_text("why", why);
    answer_number("bytes", bytes);
    answer_number("flags", flags);
    answer_code("code", code);
    answer_number("ns", ns);
    if (!code) {
        char path[64], target[128] = "";
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        const ssize_t len = readlink(path, target, sizeof(target) - 1);
        answer_text("target", len > 0 ? target : "?");
        answer_signed("size", lseek(fd, 0, SEEK_END));
    }
    answer_end();
    return code ? -1 : fd;
}

/* Single words, and all of it, by the processor. */
static void answer_access(volatile uint64_t *mapped)
{
    static struct samples reads, writes;
    static char buffer[BYTES];
    reads.count = writes.count = 0;
    for (int i = 0; i < LOOKS; i++) {
        uint64_t start = clock_ns();
        mapped[8 * i] = (uint64_t)i;
        samples_add(&writes, clock_ns() - start);
        start = clock_ns();
        (void)mapped[8 * i + 1];
        samples_add(&reads, clock_ns() - start);
    }
    uint64_t start = clock_ns();
    memcpy((void *)mapped, buffer, BYTES);
    const uint64_t write_ns = clock_ns() - start;
    start = clock_ns();
    memcpy(buffer, (void *)mapped, is_brief() ? 4096 : BYTES / 16);
    const uint64_t read_ns = clock_ns() - start;
    answer_begin("mapped_access");
    samples_answer(&writes, "write_8");
    samples_answer(&reads, "read_8");
    answer_number("write_all_ns", write_ns);
    answer_number("write_all_bytes", BYTES);
    answer_number("read_part_ns", read_ns);
    answer_number("read_part_bytes", is_brief() ? 4096 : BYTES / 16);
    answer_end();
}

static void ask_mapping(const char *memory, int fd, gpu_pointer pointer)
{
    static const int protections[] = {PROT_READ, PROT_READ | PROT_WRITE};
    if (fd < 0)
        return;
    gpu.set(pointer, MARK, 1);
    gpu.context_wait();
    for (int i = 0; i < 2; i++) {
        void *mapped = mmap(NULL, BYTES, protections[i], MAP_SHARED, fd, 0);
        const int error = mapped == MAP_FAILED ? -errno : 0;
        answer_begin("mmap");
        answer_text("memory", memory);
        answer_number("is_writable", (uint64_t)i);
        answer_errno("errno", error);
        if (!error)
            answer_number("is_same", *(volatile uint32_t *)mapped == MARK);
        answer_end();
        if (error)
            continue;
        if (i)
            answer_access(mapped);
        munmap(mapped, BYTES);
    }
    close(fd);
}

static void ask_memory(const char *memory, gpu_pointer pointer)
{
    ask_mapping(memory, ask_range(memory, "whole", pointer, BYTES, 0), pointer);
    static const struct {
        const char *why;
        size_t offset, bytes;
        uint64_t flags;
    } ranges[] = {
        {"64 KiB", 0, 65536, 0},
        {"4 KiB", 0, 4096, 0},
        {"1 B", 0, 1, 0},
        {"from 4 KiB on", 4096, 65536, 0},
        {"from 64 KiB on", 65536, 65536, 0},
        {"from byte 8 on", 8, 4096, 0},
        {"past the end", 0, 64 * MIB, 0},
        {"nothing", 0, 0, 0},
        {"mapped by PCIe", 0, BYTES, 1},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        const int fd = ask_range(memory, ranges[i].why, pointer + ranges[i].offset, ranges[i].bytes,
                                 ranges[i].flags);
        if (fd >= 0)
            close(fd);
    }
}

int main(void)
{
    struct shared vmm;
    gpu_pointer pointer = 0;
    void *host = NULL;
    gpu_open();
    gpu_must(gpu.alloc(&pointer, BYTES), "cuMemAlloc");
    ask_memory("alloc", pointer);
    gpu.free(pointer);
    if (!shared_make(&vmm, SHARED_VMM, BYTES)) {
        ask_memory("vmm", vmm.pointer);
        shared_free(&vmm);
    }
    if (!gpu.host_alloc(&host, BYTES, GPU_HOST_MAPPED)) {
        const int fd = ask_range("pinned host", "whole", (gpu_pointer)host, BYTES, 0);
        if (fd >= 0)
            close(fd);
        gpu.host_free(host);
    }
    return 0;
}
