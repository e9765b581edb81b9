/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Access to a mapped file that may have no page there: the file has become shorter, or its file
 * system is full and has none for a hole. The kernel says so by SIGBUS. A guarded access ends then,
 * and its caller is told. Each other SIGBUS goes to the handler that was there before.
 *
 * A thread that blocks SIGBUS may not access anything so: the kernel would end the process.
 */
#ifndef SW_MOVERS_NVME_GUARD_H
#define SW_MOVERS_NVME_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* Before the first access. Returns 0 or a negative errno. */
int nvt_guard_open(void);

/* False: there is no page for some of it. The rest may have been done. */
bool nvt_guard_read(void *to, const void *mapped, size_t len_bytes);
bool nvt_guard_write(void *mapped, const void *from, size_t len_bytes);
bool nvt_guard_zero(void *mapped, size_t len_bytes);
/* Sees to it that each page is there, for reading or for writing too, and changes no byte. */
bool nvt_guard_touch(void *mapped, size_t len_bytes, bool writes);

#endif
