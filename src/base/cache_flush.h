/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writing cache lines back to memory. Data that has left the caches is in the domain that a
 * platform with persistent memory keeps across a loss of power (Intel SDM vol. 1 11.4.2; Arm ARM,
 * DC CVAP), so this is what makes stores to such memory persistent.
 */
#ifndef SW_BASE_CACHE_FLUSH_H
#define SW_BASE_CACHE_FLUSH_H

#include <stdbool.h>
#include <stddef.h>

/* In order of preference. */
enum sw_cache_flush_how {
    SW_CACHE_FLUSH_NONE, /* this processor has no way that a program may use */
    SW_CACHE_FLUSH_CLFLUSH,
    SW_CACHE_FLUSH_CLFLUSHOPT,
    SW_CACHE_FLUSH_CLWB, /* keeps the line cached */
    SW_CACHE_FLUSH_CVAP, /* arm64 */
};

bool sw_cache_flush_has(enum sw_cache_flush_how how);
/* The best one there is. */
enum sw_cache_flush_how sw_cache_flush_how(void);

/* Writes all lines of the range back and returns when they have arrived. The range is mapped, and
 * `how` one that this processor has. */
void sw_cache_flush(enum sw_cache_flush_how how, const void *at, size_t len_bytes);

#endif
