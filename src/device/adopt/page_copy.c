/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/adopt/page_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "base/shm.h"
#include "device/adopt/adopt_config.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

/* Collapsing takes some 0.2 ms for a page; the minimum is for waiting for the other CPUs. */
#define COLLAPSE_NS_MIN (5 * SW_NS_PER_MS)
#define COLLAPSE_NS_PAGE (1 * SW_NS_PER_MS)

#define PAGE_BYTES_MIN 4096u
#define LARGE_PAGES_MAX (SW_LARGE_PAGE_BYTES / PAGE_BYTES_MIN)

static const char zeros[PAGE_BYTES_MIN];

static uint64_t page_bytes(void)
{
    return (uint64_t)getpagesize();
}

/* The end of the large page of the file that `offset` lies in, at most `end`. */
static uint64_t large_end(uint64_t offset, uint64_t end)
{
    uint64_t next = (offset / SW_LARGE_PAGE_BYTES + 1) * SW_LARGE_PAGE_BYTES;
    return sw_min_u64(next, end);
}

/* A present page that is neither of a file nor this process's alone is the zero page, or shared
 * with a forked process. The zero page is not worth a page of the file. */
__attribute__((noinline)) static bool is_zero_page(uint64_t entry, uint64_t va)
{
    if ((entry & (SW_PAGEMAP_PRESENT | SW_PAGEMAP_EXCLUSIVE | SW_PAGEMAP_FILE)) !=
        SW_PAGEMAP_PRESENT)
        return false;
    char bytes[PAGE_BYTES_MIN];
    for (uint64_t at = 0; at < page_bytes(); at += sizeof(bytes)) {
        struct iovec to = {.iov_base = bytes, .iov_len = sizeof(bytes)};
        struct iovec from = {.iov_base = (void *)(uintptr_t)(va + at), .iov_len = sizeof(bytes)};
        if (syscall(SYS_process_vm_readv, getpid(), &to, 1, &from, 1, 0) != sizeof(bytes) ||
            memcmp(bytes, zeros, sizeof(bytes)))
            return false;
    }
    return true;
}

static bool page_gone(const struct sw_copy *copy, uint64_t va)
{
    uint64_t entry;
    return !sw_pagemap_read(copy->pagemap, va, page_bytes(), &entry) &&
           !(entry & (SW_PAGEMAP_PRESENT | SW_PAGEMAP_SWAPPED));
}

static uint8_t *scratch_at(const struct sw_copy *copy, uint64_t offset)
{
    return copy->scratch + (offset - copy->scratch_from);
}

/* Copies a whole large page into the file's own large page: half the time of pwrite(), which goes
 * by small pages. Returns as pwrite() does. */
static long large_put(const struct sw_copy *copy, uint64_t offset, uint64_t src)
{
    struct iovec to = {.iov_base = scratch_at(copy, offset), .iov_len = SW_LARGE_PAGE_BYTES};
    struct iovec from = {.iov_base = (void *)(uintptr_t)src, .iov_len = SW_LARGE_PAGE_BYTES};
    return syscall(SYS_process_vm_readv, getpid(), &to, 1, &from, 1, 0);
}

static long run_put(const struct sw_copy *copy, uint64_t offset, uint64_t src, uint64_t len)
{
    if (copy->scratch && len == SW_LARGE_PAGE_BYTES) {
        long put = large_put(copy, offset, src);
        if (put > 0)
            return put;
    }
    return syscall(SYS_pwrite64, copy->segment->fd, src, len, offset);
}

/* Copies pages that existed a moment ago; one that is gone now (MADV_DONTNEED, reclaimed after
 * MADV_FREE) is a hole. The calls are raw because the sanitizers would take their wrappers for
 * loads of this thread. */
static int run_to_file(const struct sw_copy *copy, uint64_t offset, uint64_t src, uint64_t len)
{
    while (len) {
        long put = run_put(copy, offset, src, len);
        if (put <= 0) {
            int err = put ? errno : EIO;
            if (err == EINTR)
                continue;
            if (err != EFAULT || !page_gone(copy, src))
                return -err;
            put = (long)page_bytes();
        }
        src += (uint64_t)put;
        offset += (uint64_t)put;
        len -= (uint64_t)put;
    }
    return 0;
}

/* Copies the pages of at most one large page. */
static int large_to_file(const struct sw_copy *copy, uint64_t offset, uint64_t src, uint64_t len)
{
    uint64_t entries[LARGE_PAGES_MAX];
    uint64_t page = page_bytes();
    uint64_t count = len / page;
    int rc = sw_pagemap_read(copy->pagemap, src, len, entries);
    for (uint64_t i = 0; !rc && i < count;) {
        uint64_t first = i;
        while (i < count && (entries[i] & (SW_PAGEMAP_PRESENT | SW_PAGEMAP_SWAPPED)) &&
               !is_zero_page(entries[i], src + i * page))
            i++;
        if (i > first)
            rc = run_to_file(copy, offset + first * page, src + first * page, (i - first) * page);
        else
            i++;
    }
    return rc;
}

int sw_copy_to_file(const struct sw_copy *copy, uint64_t offset, uint64_t src, uint64_t len_bytes)
{
    int rc = 0;
    for (uint64_t end = offset + len_bytes, next; !rc && offset < end; offset = next) {
        next = large_end(offset, end);
        rc = large_to_file(copy, offset, src, next - offset);
        src += next - offset;
    }
    return rc;
}

/* Maps the segment's part of the file at a large page's boundary, or leaves scratch NULL. */
static void scratch_map(struct sw_copy *copy)
{
    const struct sw_segment *segment = copy->segment;
    uint64_t from = segment->offset / SW_LARGE_PAGE_BYTES * SW_LARGE_PAGE_BYTES;
    uint64_t len = segment->offset + segment->len_bytes - from;
    void *base = mmap(NULL, len + SW_LARGE_PAGE_BYTES, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return;
    uint64_t start = (uint64_t)(uintptr_t)base;
    uint64_t skip = (SW_LARGE_PAGE_BYTES - start % SW_LARGE_PAGE_BYTES) % SW_LARGE_PAGE_BYTES;
    if (skip)
        munmap(base, skip);
    uint8_t *scratch = (uint8_t *)base + skip;
    munmap(scratch + len, SW_LARGE_PAGE_BYTES - skip);
    if (!sw_map_sparse(scratch, len, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, from)) {
        munmap(scratch, len);
        return;
    }
    copy->scratch = scratch;
    copy->scratch_from = from;
    copy->scratch_bytes = len;
}

int sw_copy_open(struct sw_copy *copy, const struct sw_segment *segment)
{
    copy->segment = segment;
    copy->prepared = 0;
    copy->pagemap = sw_pagemap_open();
    if (copy->pagemap < 0)
        return copy->pagemap;
    bool large = sw_adopt_config()->large_pages && segment->len_bytes >= SW_LARGE_PAGE_BYTES;
    copy->scratch = NULL;
    if (large)
        scratch_map(copy);
    return 0;
}

static void scratch_unmap(struct sw_copy *copy)
{
    if (copy->scratch)
        munmap(copy->scratch, copy->scratch_bytes);
    copy->scratch = NULL;
}

void sw_copy_close(struct sw_copy *copy)
{
    scratch_unmap(copy);
    sw_pagemap_close(copy->pagemap);
}

/* All pages exist, and none is the zero page. */
static bool is_dense(const struct sw_copy *copy, uint64_t va, uint64_t len)
{
    uint64_t entries[LARGE_PAGES_MAX];
    if (sw_pagemap_read(copy->pagemap, va, len, entries))
        return false;
    for (uint64_t i = 0; i < len / page_bytes(); i++) {
        if ((entries[i] & (SW_PAGEMAP_PRESENT | SW_PAGEMAP_EXCLUSIVE)) !=
            (SW_PAGEMAP_PRESENT | SW_PAGEMAP_EXCLUSIVE))
            return false;
    }
    return true;
}

/* Makes large pages of [base, base + len), each of which has a page already. False if that fails or
 * takes so long that it is not worth while (memory is in pieces, the CPUs are busy). */
static bool collapse_range(uint8_t *base, uint64_t len)
{
    uint64_t start = sw_clock_ns();
    if (madvise(base, len, MADV_COLLAPSE))
        return false;
    return sw_clock_ns() - start < COLLAPSE_NS_MIN + len / SW_LARGE_PAGE_BYTES * COLLAPSE_NS_PAGE;
}

/* Large pages in the file for the run of dense ones that ends at `end`. */
static void collapse_run(struct sw_copy *copy, uint64_t *run, uint64_t end)
{
    if (*run < end && copy->scratch && !collapse_range(scratch_at(copy, *run), end - *run))
        scratch_unmap(copy);
    *run = end;
}

static void window_prepare(struct sw_copy *copy, uint64_t offset, uint64_t end)
{
    uint64_t run = offset; /* [run, offset) is dense and has a page in each large page */
    bool *dense = copy->dense;
    for (uint64_t next; offset < end; offset = next, dense++) {
        next = large_end(offset, end);
        *dense =
            is_dense(copy, copy->segment->va + (offset - copy->segment->offset), next - offset);
        if (*dense && next - offset == SW_LARGE_PAGE_BYTES && copy->scratch &&
            pwrite(copy->segment->fd, "", 1, (off_t)offset) == 1)
            continue;
        collapse_run(copy, &run, offset);
        run = next;
    }
    collapse_run(copy, &run, end);
}

void sw_copy_prepare(struct sw_copy *copy, uint64_t va)
{
    uint64_t offset = copy->segment->offset + (va - copy->segment->va);
    uint64_t end = copy->segment->offset + copy->segment->len_bytes;
    if (offset < copy->prepared)
        return;
    uint64_t window = (offset / SW_MOVE_WINDOW_BYTES + 1) * SW_MOVE_WINDOW_BYTES;
    copy->prepared = sw_min_u64(window, end);
    window_prepare(copy, offset, copy->prepared);
    copy->window = offset;
}

void sw_copy_populate(const struct sw_copy *copy, uint64_t va, uint64_t len_bytes)
{
    uint64_t offset = copy->segment->offset + (va - copy->segment->va);
    uint64_t end = offset + len_bytes;
    const bool *dense =
        copy->dense + (offset / SW_LARGE_PAGE_BYTES - copy->window / SW_LARGE_PAGE_BYTES);
    for (uint64_t next; offset < end; offset = next, dense++) {
        next = large_end(offset, end);
        if (*dense)
            madvise((void *)(uintptr_t)va, next - offset, MADV_POPULATE_READ);
        va += next - offset;
    }
}

/* The next range of the file that is seen to hold data within [offset, end); false if none is. Data
 * may be missed: sw_shm_is_hole(). */
static bool data_next(int fd, uint64_t offset, uint64_t end, uint64_t *from, uint64_t *to)
{
    off_t data = lseek(fd, (off_t)offset, SEEK_DATA);
    if (data < 0 || (uint64_t)data >= end)
        return false;
    off_t hole = lseek(fd, data, SEEK_HOLE);
    *from = (uint64_t)data;
    *to = hole < 0 || (uint64_t)hole > end ? end : (uint64_t)hole;
    return true;
}

void sw_copy_prepare_private(const struct sw_segment *segment, uint64_t va, uint64_t dst,
                             uint64_t len_bytes)
{
    if (!sw_adopt_config()->large_pages || !sw_segment_fd_valid(segment))
        return;
    uint64_t offset = segment->offset + (va - segment->va);
    uint64_t end = offset + len_bytes, from, to;
    for (uint64_t at = offset; data_next(segment->fd, at, end, &from, &to); at = to) {
        from = (from + SW_LARGE_PAGE_BYTES - 1) / SW_LARGE_PAGE_BYTES * SW_LARGE_PAGE_BYTES;
        uint64_t stop = to / SW_LARGE_PAGE_BYTES * SW_LARGE_PAGE_BYTES;
        if (from >= stop)
            continue;
        uint8_t *base = (uint8_t *)(uintptr_t)(dst + (from - offset));
        for (uint64_t page = 0; page < stop - from; page += SW_LARGE_PAGE_BYTES)
            base[page] = 0;
        if (!collapse_range(base, stop - from))
            return;
    }
}

/* For a program that closed our descriptor: the mapping still shows all that the file holds. Loads
 * do not wait there, the range is protected against stores only. */
static int copy_from_mapping(uint64_t va, uint64_t dst, uint64_t len, int prot)
{
    if (!(prot & PROT_READ))
        return -EBADF;
    for (uint64_t at = 0; at < len; at += sizeof(zeros)) {
        const void *from = (const void *)(uintptr_t)(va + at);
        if (memcmp(from, zeros, sizeof(zeros)))
            memcpy((void *)(uintptr_t)(dst + at), from, sizeof(zeros));
    }
    return 0;
}

static int data_from_file(int fd, uint64_t from, uint64_t to, uint64_t dst)
{
    for (uint64_t at = from; at < to;) {
        long got = syscall(SYS_pread64, fd, dst + (at - from), to - at, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got ? -errno : -EIO;
        at += (uint64_t)got;
    }
    return 0;
}

/* A hole by data_next() may be a page that the kernel is replacing. Reading waits for it, and makes
 * no pages in the file. */
static int hole_from_file(int fd, uint64_t from, uint64_t to, uint64_t dst)
{
    char bytes[sizeof(zeros)];
    int rc = 0;
    if (sw_shm_is_hole(fd, from, to - from))
        return 0;
    for (uint64_t at = from; !rc && at < to; at += sizeof(bytes)) {
        rc = data_from_file(fd, at, at + sizeof(bytes), (uint64_t)(uintptr_t)bytes);
        if (!rc && memcmp(bytes, zeros, sizeof(bytes)))
            rc = data_from_file(fd, at, at + sizeof(bytes), dst + (at - from));
    }
    return rc;
}

int sw_copy_from_file(const struct sw_segment *segment, uint64_t va, uint64_t dst,
                      uint64_t len_bytes, int prot)
{
    if (!sw_segment_fd_valid(segment))
        return copy_from_mapping(va, dst, len_bytes, prot);
    const int fd = segment->fd;
    uint64_t offset = segment->offset + (va - segment->va);
    uint64_t end = offset + len_bytes, from, to;
    int rc = 0;
    for (uint64_t at = offset; !rc && at < end; at = to) {
        if (!data_next(fd, at, end, &from, &to))
            from = to = end;
        rc = hole_from_file(fd, at, from, dst + (at - offset));
        if (!rc)
            rc = data_from_file(fd, from, to, dst + (from - offset));
    }
    return rc;
}
