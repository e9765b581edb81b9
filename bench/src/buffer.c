/* SPDX-License-Identifier: BSD-2-Clause */
#include "buffer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_BYTES ((size_t)2 << 20)

static void *map(size_t len_bytes, int flags)
{
    void *memory =
        mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
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
        memory = map(whole, MAP_HUGETLB);
        break;
    case BENCH_BUFFER_THP:
        memory = map(whole + HUGE_BYTES, 0);
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
