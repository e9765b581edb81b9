/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/cache_flush.h"

#include <stdint.h>

#if defined(__x86_64__)

#include <cpuid.h>

/* CPUID leaf 7, EBX (Intel SDM vol. 2, CPUID). The line size that the instructions work on is 64 on
 * every x86-64 processor, and 1: EBX[15:8] says so in units of 8. */
#define LEAF7_CLFLUSHOPT (1u << 23)
#define LEAF7_CLWB (1u << 24)
#define LEAF1_CLFLUSH (1u << 19)

static size_t line_bytes(void)
{
    unsigned int a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) ? (b >> 8 & 0xff) * 8 : 64;
}

bool sw_cache_flush_has(enum sw_cache_flush_how how)
{
    unsigned int a, b, c, d;
    switch (how) {
    case SW_CACHE_FLUSH_CLFLUSH:
        return __get_cpuid(1, &a, &b, &c, &d) && d & LEAF1_CLFLUSH;
    case SW_CACHE_FLUSH_CLFLUSHOPT:
        return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & LEAF7_CLFLUSHOPT;
    case SW_CACHE_FLUSH_CLWB:
        return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & LEAF7_CLWB;
    case SW_CACHE_FLUSH_NONE:
        return true;
    case SW_CACHE_FLUSH_CVAP:
        return false;
    }
    return false;
}

static void flush_line(enum sw_cache_flush_how how, volatile char *line)
{
    if (how == SW_CACHE_FLUSH_CLWB)
        __asm__ volatile("clwb %0" : "+m"(*line));
    else if (how == SW_CACHE_FLUSH_CLFLUSHOPT)
        __asm__ volatile("clflushopt %0" : "+m"(*line));
    else
        __asm__ volatile("clflush %0" : "+m"(*line));
}

static void wait_for_lines(void)
{
    __asm__ volatile("sfence" ::: "memory");
}

#elif defined(__aarch64__)

#include <sys/auxv.h>

#define HWCAP_DCPOP_BIT (1ul << 16) /* asm/hwcap.h */

static size_t line_bytes(void)
{
    uint64_t ctr; /* CTR_EL0.DminLine: log2 of the words of the smallest data cache line */
    __asm__("mrs %0, ctr_el0" : "=r"(ctr));
    return 4ul << (ctr >> 16 & 0xf);
}

bool sw_cache_flush_has(enum sw_cache_flush_how how)
{
    return how == SW_CACHE_FLUSH_NONE ||
           (how == SW_CACHE_FLUSH_CVAP && getauxval(AT_HWCAP) & HWCAP_DCPOP_BIT);
}

static void flush_line(enum sw_cache_flush_how how, volatile char *line)
{
    (void)how;
    __asm__ volatile("sys #3, c7, c12, #1, %0" ::"r"(line) : "memory"); /* dc cvap */
}

static void wait_for_lines(void)
{
    __asm__ volatile("dsb sy" ::: "memory");
}

#else

static size_t line_bytes(void)
{
    return 64;
}

bool sw_cache_flush_has(enum sw_cache_flush_how how)
{
    return how == SW_CACHE_FLUSH_NONE;
}

static void flush_line(enum sw_cache_flush_how how, volatile char *line)
{
    (void)how;
    (void)line;
}

static void wait_for_lines(void)
{
}

#endif

enum sw_cache_flush_how sw_cache_flush_how(void)
{
    for (int how = SW_CACHE_FLUSH_CVAP; how > SW_CACHE_FLUSH_NONE; how--)
        if (sw_cache_flush_has((enum sw_cache_flush_how)how))
            return (enum sw_cache_flush_how)how;
    return SW_CACHE_FLUSH_NONE;
}

void sw_cache_flush(enum sw_cache_flush_how how, const void *at, size_t len_bytes)
{
    size_t line = line_bytes();
    uintptr_t end = (uintptr_t)at + len_bytes;
    uintptr_t start = (uintptr_t)at & ~(uintptr_t)(line - 1);
    if (how == SW_CACHE_FLUSH_NONE || len_bytes == 0)
        return;
    for (uintptr_t here = start; here < end; here += line)
        flush_line(how, (volatile char *)here);
    wait_for_lines();
}
