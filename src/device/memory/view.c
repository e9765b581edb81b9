/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/memory/view.h"

#include <stdbool.h>
#include <sys/mman.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/minmax.h"
#include "base/shm.h"
#include "device/adopt/segment.h"
#include "device/adopt/vma.h"

int64_t sw_view_shift[SW_MAX_MR];

/* The pages that hold a range. */
struct span {
    uint64_t start;
    uint64_t end;
};

static struct span pages_of(uint64_t va, uint64_t len_bytes)
{
    const uint64_t page = (uint64_t)getpagesize();
    return (struct span){va / page * page, (va + len_bytes + page - 1) / page * page};
}

/* Adopted memory is a sealed file of ours, whose pages go back to where they were. */
static bool is_adopted(const struct sw_vma *vma, uint64_t at)
{
    sw_segments_lock();
    const struct sw_segment *segment = sw_segments_match(vma, at);
    const bool adopted = segment && segment->kind != SW_SEGMENT_FOREIGN;
    sw_segments_unlock();
    return adopted;
}

/* Given no length, mremap() makes a second mapping of what is shared. */
static bool copy_mapping(uint64_t from, uint64_t len_bytes, uint64_t to)
{
    return sw_remap((void *)from, 0, len_bytes, (void *)to);
}

static bool fill_view(struct span from, uint64_t to)
{
    struct sw_vma_reader reader;
    struct sw_vma vma;
    uint64_t at = from.start;
    if (sw_vma_open(&reader, false))
        return false;
    while (at < from.end && sw_vma_next(&reader, at, &vma) == 1 && vma.start <= at &&
           vma.kind == SW_VMA_SHARED && !is_adopted(&vma, at)) {
        const uint64_t end = sw_min_u64(vma.end, from.end);
        if (!copy_mapping(at, end - at, to + (at - from.start)))
            break;
        at = end;
    }
    sw_vma_close(&reader);
    return at >= from.end;
}

int64_t sw_view_make(uint64_t va, uint64_t len_bytes)
{
    const struct span from = pages_of(va, len_bytes);
    const uint64_t size = from.end - from.start;
    void *base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return 0;
    if (fill_view(from, (uintptr_t)base) && sw_fault_guard(base, size))
        return (int64_t)((uintptr_t)base - from.start);
    sw_debug("region 0x%llx has no view: it cannot be taken away, or is not guarded",
             (unsigned long long)va);
    munmap(base, size);
    return 0;
}

void sw_view_drop(int64_t shift, uint64_t va, uint64_t len_bytes)
{
    const struct span from = pages_of(va, len_bytes);
    if (!shift)
        return;
    void *base = (void *)(uintptr_t)(from.start + (uint64_t)shift);
    sw_fault_unguard(base);
    munmap(base, from.end - from.start);
}
