/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/card_memory.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include "base/in_order.h"

#define RANGES_MAX 64
#define FILLING 1u /* no range ends there */

/* Without a lock, which a fork could leave taken. */
struct range {
    _Atomic uint64_t start;
    _Atomic uint64_t end; /* 0: free */
};

atomic_uint sw_card_ranges;
static struct range ranges[RANGES_MAX];

bool sw_card_memory_is_file(int fd)
{
    struct statfs fs;
    return !fstatfs(fd, &fs) && fs.f_type == SYSFS_MAGIC;
}

static bool is_known(uint64_t start, uint64_t end)
{
    for (int i = 0; i < RANGES_MAX; i++)
        if (atomic_load(&ranges[i].end) == end && atomic_load(&ranges[i].start) == start)
            return true;
    return false;
}

bool sw_card_memory_add(uint64_t va, uint64_t len_bytes)
{
    if (is_known(va, va + len_bytes))
        return true;
    for (int i = 0; i < RANGES_MAX; i++) {
        uint64_t end = 0;
        if (!atomic_compare_exchange_strong(&ranges[i].end, &end, FILLING))
            continue;
        atomic_store(&ranges[i].start, va);
        atomic_store(&ranges[i].end, va + len_bytes);
        atomic_fetch_add(&sw_card_ranges, 1);
        return true;
    }
    return false;
}

void sw_card_memory_remove(uint64_t va)
{
    for (int i = 0; i < RANGES_MAX; i++) {
        uint64_t end = atomic_load(&ranges[i].end);
        if (end > FILLING && atomic_load(&ranges[i].start) == va &&
            atomic_compare_exchange_strong(&ranges[i].end, &end, 0))
            atomic_fetch_sub(&sw_card_ranges, 1);
    }
}

bool sw_card_memory_find(uint64_t va)
{
    for (int i = 0; i < RANGES_MAX; i++)
        if (va < atomic_load_explicit(&ranges[i].end, memory_order_acquire) &&
            va >= atomic_load_explicit(&ranges[i].start, memory_order_relaxed))
            return true;
    return false;
}

/* Write-combining buffers as well, which a fence of C11 need not empty. */
static void leave_processor(void)
{
#if defined(__x86_64__)
    __builtin_ia32_mfence();
#elif defined(__aarch64__)
    __asm__ volatile("dsb sy" ::: "memory");
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

void sw_card_memory_copy(uint8_t *to, const uint8_t *from, uint64_t len_bytes)
{
    sw_copy_words(to, from, len_bytes);
    leave_processor();
}

void sw_card_memory_settle(const uint8_t *at)
{
    leave_processor();
    (void)*(const volatile uint32_t *)(const void *)(at - (uintptr_t)at % sizeof(uint32_t));
    leave_processor();
}
