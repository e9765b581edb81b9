/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/adopt/pagemap.h"

#include <errno.h>
#include <unistd.h>

#include "device/adopt/keep.h"

int sw_pagemap_open(void)
{
    return sw_keep_open(SW_KEEP_PAGEMAP);
}

void sw_pagemap_close(int pagemap)
{
    sw_keep_close(pagemap);
}

int sw_pagemap_read(int pagemap, uint64_t va, uint64_t len_bytes, uint64_t *entries)
{
    const uint64_t page = (uint64_t)getpagesize();
    const size_t bytes = len_bytes / page * sizeof(*entries);
    const ssize_t got = pread(pagemap, entries, bytes, (off_t)(va / page * sizeof(*entries)));
    if (got < 0)
        return -errno;
    return (size_t)got == bytes ? 0 : -EIO;
}

int sw_pagemap_is_protected(int pagemap, uint64_t va, uint64_t len_bytes)
{
    const uint64_t end = va + len_bytes;
    for (uint64_t at = va; at < end; at = (at / SW_LARGE_PAGE_BYTES + 1) * SW_LARGE_PAGE_BYTES) {
        uint64_t entry;
        const int rc = sw_pagemap_read(pagemap, at, (uint64_t)getpagesize(), &entry);
        if (rc || !(entry & SW_PAGEMAP_PROTECTED))
            return rc;
    }
    return 1;
}
