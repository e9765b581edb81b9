/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel says of each page of this process: /proc/self/pagemap
 * (Documentation/admin-guide/mm/pagemap.rst). All with the move lock held.
 */
#ifndef SW_DEVICE_ADOPT_PAGEMAP_H
#define SW_DEVICE_ADOPT_PAGEMAP_H

#include <stdbool.h>
#include <stdint.h>

#define SW_LARGE_PAGE_BYTES (UINT64_C(2) << 20)

/* Bits of an entry. */
#define SW_PAGEMAP_EXCLUSIVE (UINT64_C(1) << 56)
#define SW_PAGEMAP_PROTECTED (UINT64_C(1) << 57) /* by a userfaultfd (files: Linux 5.19) */
#define SW_PAGEMAP_FILE (UINT64_C(1) << 61)
#define SW_PAGEMAP_SWAPPED (UINT64_C(1) << 62)
#define SW_PAGEMAP_PRESENT (UINT64_C(1) << 63)

/* A descriptor for the calls below and sw_pagemap_close(), or a negative errno. */
int sw_pagemap_open(void);
void sw_pagemap_close(int pagemap);

/* Reads an entry for each page of [va, va + len_bytes), both whole pages. 0 or a negative errno. */
int sw_pagemap_read(int pagemap, uint64_t va, uint64_t len_bytes, uint64_t *entries);

/* Whether stores to [va, va + len_bytes) wait, a range of a file that sw_uffd_protect() was asked
 * to protect: the first page of each large page is asked for. 1, 0, or a negative errno. */
int sw_pagemap_is_protected(int pagemap, uint64_t va, uint64_t len_bytes);

#endif
