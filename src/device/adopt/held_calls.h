/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The calls of madvise(2) by threads of this process that a userfaultfd holds up
 * (device/adopt/uffd.h). Its event would tell the range, but reading that lets the caller go on;
 * the kernel also tells it in /proc/self/task/TID/syscall, proc(5).
 */
#ifndef SW_DEVICE_ADOPT_HELD_CALLS_H
#define SW_DEVICE_ADOPT_HELD_CALLS_H

#include <stdbool.h>
#include <stdint.h>

struct sw_held_call {
    uint64_t va;
    uint64_t len_bytes;
    int advice;
};

/* Calls fn for each, and returns how many there are: 0 also where the kernel does not say who waits
 * for what. Allocates nothing; with the move lock held. */
int sw_held_calls_each(void (*fn)(const struct sw_held_call *call));

/* What /proc/self/task/TID/syscall says. False if that is no madvise(). */
bool sw_held_call_parse(const char *text, struct sw_held_call *out);

#endif
