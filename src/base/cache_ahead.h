/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cache lines that are asked for before they are written. A line that the reader on another core
 * has looked at must come from there, and the next atomic instruction waits for all stores before
 * it. Code that knows where it will write next has the line come meanwhile.
 */
#ifndef SW_BASE_CACHE_AHEAD_H
#define SW_BASE_CACHE_AHEAD_H

static inline void sw_cache_own_soon(const void *at)
{
#if defined(__x86_64__)
    /* The builtin asks for a shared copy only, unless the compiler is told of a newer processor. No
     * processor of this architecture takes the instruction for an illegal one. */
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));
#else
    __builtin_prefetch(at, 1);
#endif
}

#endif
