/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/fault.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/sigbus.h"

#define RANGES_MAX 16384u
#define PAGE_BYTES 4096u

/* Read by the handler, without a lock: the length goes last in and first out. */
struct range {
    _Atomic uintptr_t base;
    _Atomic size_t len_bytes;
    atomic_bool is_lost;
};

atomic_uint sw_fault_losses;

static struct range ranges[RANGES_MAX];
static atomic_uint range_end; /* behind the last one ever used */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct range *fault_find_range(uintptr_t at)
{
    const uint32_t end = atomic_load(&range_end);
    for (uint32_t i = 0; i < end; i++) {
        const size_t len_bytes = atomic_load(&ranges[i].len_bytes);
        const uintptr_t base = atomic_load(&ranges[i].base);
        if (len_bytes && at - base < len_bytes)
            return &ranges[i];
    }
    return NULL;
}

static bool replace_range(struct range *range)
{
    void *base = (void *)atomic_load(&range->base);
    if (mmap(base, atomic_load(&range->len_bytes), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        return false;
    if (!atomic_exchange(&range->is_lost, true))
        atomic_fetch_add(&sw_fault_losses, 1);
    return true;
}

static bool mend_fault(const siginfo_t *info)
{
    struct range *range = fault_find_range((uintptr_t)info->si_addr);
    return range && replace_range(range);
}

bool sw_fault_guard(void *base, size_t len_bytes)
{
    sw_sigbus_take(mend_fault);
    pthread_mutex_lock(&lock);
    uint32_t i = 0;
    while (i < RANGES_MAX && atomic_load(&ranges[i].len_bytes))
        i++;
    if (i < RANGES_MAX) {
        atomic_store(&ranges[i].base, (uintptr_t)base);
        atomic_store(&ranges[i].is_lost, false);
        atomic_store(&ranges[i].len_bytes, len_bytes);
        if (i >= atomic_load(&range_end))
            atomic_store(&range_end, i + 1);
    }
    pthread_mutex_unlock(&lock);
    return i < RANGES_MAX;
}

void sw_fault_unguard(const void *base)
{
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < atomic_load(&range_end); i++)
        if (atomic_load(&ranges[i].len_bytes) && atomic_load(&ranges[i].base) == (uintptr_t)base)
            atomic_store(&ranges[i].len_bytes, 0);
    pthread_mutex_unlock(&lock);
}

bool sw_fault_probe(const void *at, size_t len_bytes)
{
    const struct range *range = fault_find_range((uintptr_t)at);
    if (!range || !len_bytes)
        return true;
    sw_sigbus_enter();
    const volatile uint8_t *bytes = at;
    for (size_t i = 0; i < len_bytes; i += PAGE_BYTES)
        (void)bytes[i];
    (void)bytes[len_bytes - 1];
    return !atomic_load(&range->is_lost);
}

bool sw_fault_lost_at(const void *at)
{
    const struct range *range = fault_find_range((uintptr_t)at);
    return range && atomic_load(&range->is_lost);
}
