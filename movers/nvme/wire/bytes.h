/* SPDX-License-Identifier: BSD-2-Clause */
/* Texts of fixed length. */
#ifndef SW_MOVERS_NVME_BYTES_H
#define SW_MOVERS_NVME_BYTES_H

#include <string.h>

/* A text as NVMe has it: blanks up to its end, and no NUL. */
static inline void nvf_pad(char *to, size_t size, const char *from)
{
    const size_t len = strnlen(from, size);
    memcpy(to, from, len);
    memset(to + len, ' ', size - len);
}

#endif
