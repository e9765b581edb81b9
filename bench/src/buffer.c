/* SPDX-License-Identifier: BSD-2-Clause */
#include "buffer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES ((size_t)2 << 20)

static void *buffer_map(size_t len_bytes, int flags, int fd)
{
    void *memory = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

/* Shared, as DPDK, SPDK and perftest take theirs. */
static void *map_reserved(size_t len_bytes)
{
    int fd = memfd_create("bench", MFD_CLOEXEC | MFD_HUGETLB);

    if (fd < 0 || ftruncate(fd, (off_t)len_bytes))
        return NULL;
    return buffer_map(len_bytes, MAP_SHARED, fd);
}

void *bench_buffer_create(enum bench_buffer_kind kind, size_t len_bytes)
{
    size_t whole = (len_bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
    char *memory = NULL;

    switch (kind) {
    case BENCH_BUFFER_MALLOC:
        memory = malloc(len_bytes);
        break;
    case BENCH_BUFFER_HUGETLB:
        memory = map_reserved(whole);
        break;
    case BENCH_BUFFER_THP:
        memory = buffer_map(whole + HUGE_BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1);
        if (!memory)
            break;
        memory = (char *)(((uintptr_t)memory + HUGE_BYTES - 1) & ~(uintptr_t)(HUGE_BYTES - 1));
        if (madvise(memory, whole, MADV_HUGEPAGE))
            return NULL;
        break;
    }
    if (memory)
        memset(memory, 1, len_bytes);
    return memory;
}
