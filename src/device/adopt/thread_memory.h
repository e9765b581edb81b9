/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory that threads stand on: stacks, thread control blocks, thread-local storage. It must
 * never be adopted: the kernel itself writes there (signal frames, rseq, robust lists) and kills
 * where it cannot; and a thread that moves pages needs its own.
 */
#ifndef SW_DEVICE_ADOPT_THREAD_MEMORY_H
#define SW_DEVICE_ADOPT_THREAD_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "device/adopt/vma.h"

/* Measures what is measured once. Takes the loader's lock, so not with the move lock held. */
void sw_thread_memory_prepare(void);

/* Finds the lowest thread memory within [start, end) of `vma`: stores its bounds (page-rounded,
 * within [start, end)). False if there is none. When the threads cannot be listed, all of it is
 * taken for thread memory. */
bool sw_thread_memory_next(const struct sw_vma *vma, uint64_t start, uint64_t end, uint64_t *from,
                           uint64_t *to);

#endif
