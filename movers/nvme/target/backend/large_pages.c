/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/large_pages.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

/* After so much was written to a piece it gets its page: so memory at most doubles by that. */
enum { SECTOR_BYTES = 512, ENOUGH = NVT_LARGE_PAGE_BYTES / 2 / SECTOR_BYTES };

static size_t pieces_of(const struct nvt_large_pages *pages)
{
    return pages->len_bytes / NVT_LARGE_PAGE_BYTES; /* the rest of them keeps small pages */
}

/* Addresses that begin where a large page can. */
static uint8_t *reserve_aligned(size_t len_bytes)
{
    const size_t more = len_bytes + NVT_LARGE_PAGE_BYTES;
    uint8_t *all = mmap(NULL, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    const size_t skip = -(uintptr_t)all % NVT_LARGE_PAGE_BYTES;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t used = (skip + len_bytes + page - 1) / page * page;
    if (skip)
        munmap(all, skip);
    if (used < more)
        munmap(all + used, more - used);
    return all + skip;
}

/* A file in memory: only such memory can get large pages while NICs in user space use it. */
static bool large_pages_map_file(struct nvt_large_pages *pages)
{
    const int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
    pages->fd = memfd_create("sidewire-nvme-ram", MFD_CLOEXEC);
    if (pages->fd < 0)
        return false;
    if (!ftruncate(pages->fd, (off_t)pages->len_bytes) &&
        mmap(pages->base, pages->len_bytes, prot, flags, pages->fd, 0) != MAP_FAILED)
        return true;
    close(pages->fd);
    pages->fd = -1;
    return false;
}

int nvt_large_pages_map(struct nvt_large_pages *pages, size_t len_bytes)
{
    const int prot = PROT_READ | PROT_WRITE;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    *pages = (struct nvt_large_pages){
        .base = reserve_aligned(len_bytes), .len_bytes = len_bytes, .fd = -1};
    if (!pages->base)
        return -errno;
    if (!large_pages_map_file(pages) &&
        mmap(pages->base, len_bytes, prot, flags, -1, 0) == MAP_FAILED) {
        const int rc = -errno;
        munmap(pages->base, len_bytes);
        return rc;
    }
    if (pages->fd >= 0)
        pages->written = calloc(pieces_of(pages) + 1, sizeof(*pages->written));
    return 0;
}

void nvt_large_pages_unmap(struct nvt_large_pages *pages)
{
    munmap(pages->base, pages->len_bytes);
    if (pages->fd >= 0)
        close(pages->fd);
    free((void *)pages->written);
}

/* Whether that made it enough: says so once for each piece. */
static bool is_enough_now(_Atomic uint16_t *written, uint64_t sectors)
{
    uint16_t before = atomic_load_explicit(written, memory_order_relaxed);
    uint16_t after;
    do {
        if (before == ENOUGH)
            return false;
        after = sectors < (uint64_t)(ENOUGH - before) ? (uint16_t)(before + sectors) : ENOUGH;
    } while (!atomic_compare_exchange_weak_explicit(written, &before, after, memory_order_relaxed,
                                                    memory_order_relaxed));
    return after == ENOUGH;
}

void nvt_large_pages_note(struct nvt_large_pages *pages, uint64_t offset, uint64_t len_bytes)
{
    const uint64_t end = offset + len_bytes;
    for (uint64_t next; pages->written && offset < end; offset = next) {
        const uint64_t piece = offset / NVT_LARGE_PAGE_BYTES;
        if (piece >= pieces_of(pages))
            return;
        next = (piece + 1) * NVT_LARGE_PAGE_BYTES;
        next = next < end ? next : end;
        /* It does so or does not: pinned pages, no large one free, an old kernel. */
        if (is_enough_now(&pages->written[piece], (next - offset) / SECTOR_BYTES))
            (void)madvise(pages->base + piece * NVT_LARGE_PAGE_BYTES, NVT_LARGE_PAGE_BYTES,
                          MADV_COLLAPSE);
    }
}

void nvt_large_pages_forget(struct nvt_large_pages *pages, uint64_t offset, uint64_t len_bytes)
{
    const uint64_t end = (offset + len_bytes) / NVT_LARGE_PAGE_BYTES;
    uint64_t piece = (offset + NVT_LARGE_PAGE_BYTES - 1) / NVT_LARGE_PAGE_BYTES;
    for (; pages->written && piece < end; piece++)
        atomic_store_explicit(&pages->written[piece], 0, memory_order_relaxed);
}
