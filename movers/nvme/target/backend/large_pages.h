/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of a namespace that gets a large page for each piece that is in use. Random blocks of it
 * are then found by a page table that the processor keeps at hand. A piece that was never written
 * takes no memory, and one of which little was written keeps small pages.
 */
#ifndef SW_MOVERS_NVME_LARGE_PAGES_H
#define SW_MOVERS_NVME_LARGE_PAGES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { NVT_LARGE_PAGE_BYTES = 2 << 20 };

struct nvt_large_pages {
    uint8_t *base; /* [len_bytes], at the beginning of a piece */
    size_t len_bytes;
    int fd;                    /* of the file in memory; -1: private memory, which stays as it is */
    _Atomic uint16_t *written; /* [pieces], in sectors, at most half a piece; NULL: of none */
};

/* 0 or a negative errno. */
int nvt_large_pages_map(struct nvt_large_pages *pages, size_t len_bytes);
void nvt_large_pages_unmap(struct nvt_large_pages *pages);

/* Something was written there. Several threads may say so at the same time. */
void nvt_large_pages_note(struct nvt_large_pages *pages, uint64_t offset, uint64_t len_bytes);
/* Pages there were given back: pieces that lie in it begin anew. */
void nvt_large_pages_forget(struct nvt_large_pages *pages, uint64_t offset, uint64_t len_bytes);

#endif
