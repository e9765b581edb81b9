/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory in which a test makes holes. The kernel fills holes from the top, with whatever any thread
 * maps next: the page that a sanitizer keeps for a thread was found there, and went when the test
 * unmapped its memory. So this lies below all else, in the part of the address space that both
 * AddressSanitizer and ThreadSanitizer leave to programs and where no program is loaded. */
#ifndef SW_TESTS_DEVICE_APART_H
#define SW_TESTS_DEVICE_APART_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define APART ((void *)0x551000000000)

static inline uint8_t *apart_map(size_t len_bytes)
{
    void *at = mmap(APART, len_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        abort();
    return at;
}

#endif
