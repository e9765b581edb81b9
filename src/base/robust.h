/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A word of shared memory that tells that a thread has ended, by whatever. The kernel marks it (a
 * robust futex, set_robust_list(2)) as soon as the thread dies. The descriptors of a process are
 * closed only after its memory was taken down, which takes seconds where the kernel's locks of that
 * memory are held by others that get no processor.
 */
#ifndef SW_BASE_ROBUST_H
#define SW_BASE_ROBUST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The word tells of the calling thread from here on. At most one thread of a process calls it, one
 * that uses no robust mutexes besides. False: the kernel does not do it, and the word stays 0. */
bool sw_robust_hold(_Atomic uint32_t *word);

/* Whether the thread that holds the word has ended; false, too, if none ever held it. */
bool sw_robust_has_ended(const _Atomic uint32_t *word);

#endif
