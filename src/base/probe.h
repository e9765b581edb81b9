/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that a program names: whether it is there, asked of the kernel. A system call answers
 * EFAULT to a bad pointer, so a function that takes the place of one must not fault on it either.
 */
#ifndef SW_BASE_PROBE_H
#define SW_BASE_PROBE_H

#include <stdbool.h>
#include <stddef.h>

/* Whether a string can be read up to its end, and has one within `max` bytes. One system call (a
 * tenth of a microsecond) for each page. Keeps errno. */
bool sw_probe_string(const char *string, size_t max);

/* Whether bytes can be read. As costly. Keeps errno. */
bool sw_probe_bytes(const void *bytes, size_t len);

/* Copies from memory of the program. False: it is not there. Keeps errno. */
bool sw_probe_load(void *to, const void *from, size_t len);

/* Copies to memory of the program. 0, or -EFAULT. Keeps errno. */
int sw_probe_store(void *to, const void *from, size_t len);

#endif
