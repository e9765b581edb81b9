/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/adopt/page_move.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/minmax.h"
#include "device/adopt/adopt_monitor.h"
#include "device/adopt/keep.h"
#include "device/adopt/page_copy.h"
#include "device/adopt/vma.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define LEAN_CHUNK_BYTES (UINT64_C(256) << 10) /* so much memory exists twice where it is short */

/* For each try that fails, another thread stored at the wrong moment. */
#define PROTECT_TRIES 100

#ifdef SW_TEST_HOOKS
bool sw_page_move_unprotected;
#else
static const bool sw_page_move_unprotected;
#endif

static void *ptr_of(uint64_t va)
{
    return (void *)(uintptr_t)va;
}

static uint64_t park_of(const struct sw_segment *segment, uint64_t va)
{
    return segment->park + (va - segment->va);
}

static uint64_t page_move_offset_of(const struct sw_segment *segment, uint64_t va)
{
    return segment->offset + (va - segment->va);
}

/* The end of the part of [va, end) that lies in one cell of a grid on the file. */
static uint64_t grid_end(const struct sw_segment *segment, uint64_t va, uint64_t end, uint64_t cell)
{
    uint64_t left = cell - page_move_offset_of(segment, va) % cell;
    return end - va > left ? va + left : end;
}

/* Chunks are always cut alike, so a chunk of the park is one mapping, as mremap() wants it. */
static uint64_t chunk_end(const struct sw_segment *segment, uint64_t va, uint64_t end)
{
    return grid_end(segment, va, end, SW_MOVE_CHUNK_BYTES);
}

/* Moves page tables from one place to another, replacing in one step what was there; `from` stays
 * mapped, empty. The system calls here are raw because the sanitizers take their wrappers for
 * accesses of this thread to the memory. */
static int tables_move(uint64_t from, uint64_t to, uint64_t len)
{
    long flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    return syscall(SYS_mremap, from, len, len, flags, to) == -1 ? -errno : 0;
}

static int file_map(const struct sw_segment *segment, uint64_t va, uint64_t len, int prot)
{
    long flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
    uint64_t offset = page_move_offset_of(segment, va);
    return syscall(SYS_mmap, va, len, prot, flags, segment->fd, offset) == -1 ? -errno : 0;
}

/* No child shares the range, whoever forks, and by whatever call. */
static int file_keep(uint64_t va, uint64_t len)
{
    return syscall(SYS_madvise, va, len, MADV_DONTFORK) ? -errno : 0;
}

int sw_park_reserve(struct sw_segment *segment)
{
    /* Placed alike within a large page, so that large pages can move whole. */
    uint64_t align = segment->len_bytes >= SW_LARGE_PAGE_BYTES ? SW_LARGE_PAGE_BYTES : 0;
    uint64_t len = segment->len_bytes + align;
    void *base = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return -errno;
    munlock(base, len);
    uint64_t start = (uint64_t)(uintptr_t)base;
    uint64_t skip = align ? (segment->va - start) % align : 0;
    if (skip)
        munmap(base, skip);
    if (align - skip)
        munmap(ptr_of(start + skip + segment->len_bytes), align - skip);
    segment->park = start + skip;
    return 0;
}

void sw_park_release(struct sw_segment *segment)
{
    munmap(ptr_of(segment->park), segment->len_bytes);
}

bool sw_pages_locked(uint64_t va)
{
    return syscall(SYS_madvise, va, getpagesize(), MADV_COLD) == -1 && errno == EINVAL;
}

/* How the mapping at va is locked, for mlock2(); NOT_LOCKED. Whether on fault only is seen in smaps
 * (Linux 6.16). */
#define NOT_LOCKED (-1)
static int lock_of(uint64_t va)
{
    if (!sw_pages_locked(va))
        return NOT_LOCKED;
    return sw_vma_has_flag(va, " lf") ? MLOCK_ONFAULT : 0;
}

static void lock_again(uint64_t va, uint64_t len, int lock)
{
    if (lock != NOT_LOCKED)
        mlock2(ptr_of(va), len, (unsigned int)lock);
}

/* Returns how they were locked; they are not any more. */
static int park_drop(const struct sw_segment *segment, uint64_t va, uint64_t len_bytes)
{
    int lock = NOT_LOCKED;
    for (uint64_t at = va, next; at < va + len_bytes; at = next) {
        next = chunk_end(segment, at, va + len_bytes);
        void *park = ptr_of(park_of(segment, at));
        if (!madvise(park, next - at, MADV_DONTNEED) || errno != EINVAL)
            continue;
        lock = lock_of(park_of(segment, at)); /* what is locked is not dropped */
        munlock(park, next - at);
        madvise(park, next - at, MADV_DONTNEED);
    }
    return lock;
}

void sw_park_drop(const struct sw_segment *segment, uint64_t va, uint64_t len_bytes)
{
    park_drop(segment, va, len_bytes);
}

/* Moves page tables that may lie in more than one mapping, because their owner advised, locked or
 * protected parts: mapping by mapping. From Linux 6.17 on one call could move them all. If
 * something interrupts it on its way, the kernel makes it again from the beginning, and what it had
 * moved is replaced by what that left behind: nothing. *done is how far. */
static int tables_move_parts(uint64_t from, uint64_t to, uint64_t len, uint64_t *done)
{
    struct sw_vma_reader reader;
    struct sw_vma vma;
    int rc = 0;
    const int fd = sw_keep_open(SW_KEEP_MAPS);
    *done = 0;
    if (fd < 0)
        return fd;
    sw_vma_use(&reader, fd);
    while (!rc && *done < len) {
        const uint64_t at = from + *done;
        const int found = sw_vma_next(&reader, at, &vma);
        const bool is_there = found == 1 && vma.start <= at;
        const uint64_t step = is_there ? sw_min_u64(vma.end - at, len - *done) : 0;
        rc = is_there ? tables_move(at, to + *done, step) : found < 0 ? found : -EFAULT;
        if (!rc)
            *done += step;
    }
    sw_keep_close(fd);
    return rc;
}

/* Puts the private pages back from the park. Without that the program could not go on, so a kernel
 * that is short of memory is asked again for a while. */
static void tables_put_back(uint64_t park, uint64_t va, uint64_t len)
{
    const struct timespec pause = {.tv_nsec = 1000 * 1000};
    for (int tries = 0; tries < 10000; tries++) {
        if (!tables_move(park, va, len))
            return;
        nanosleep(&pause, NULL);
    }
    abort();
}

/* Takes one chunk. The order differs with the kind of userfaultfd: when it stops everybody, the
 * pages are set aside first, so that nobody can pull a page away (madvise, reclaim of MADV_FREE)
 * from under the copy, which would then wait for itself. When it stops user mode only, they stay
 * readable while they are copied, so that system calls that read them go on; a page that vanishes
 * then just makes the copy's system call fail. */
static int chunk_take(const struct sw_copy *copy, const struct sw_uffd *uffd, uint64_t va,
                      uint64_t len, int prot)
{
    const struct sw_segment *segment = copy->segment;
    uint64_t park = park_of(segment, va);
    bool aside = false;
    bool aside_first = !uffd->user_mode_only && !sw_page_move_unprotected;
    int rc = 0;
    if (!sw_page_move_unprotected) {
        rc = sw_uffd_arm(uffd, va, len, SW_UFFD_MISSING | (aside_first ? 0 : SW_UFFD_WRITES));
        if (rc)
            return rc;
        if (!aside_first)
            rc = sw_uffd_protect(uffd, va, len);
    }
    if (!rc && aside_first) {
        rc = tables_move(va, park, len);
        aside = !rc;
    }
    if (!rc)
        rc = sw_copy_to_file(copy, page_move_offset_of(segment, va), aside ? park : va, len);
    if (!rc && !aside) {
        rc = tables_move(va, park, len);
        aside = !rc;
    }
    if (!rc)
        rc = file_map(segment, va, len, prot);
    const bool mapped = !rc;
    if (mapped)
        rc = file_keep(va, len);
    if (rc && mapped) /* threads have stored to the file: it goes back as what is adopted does */
        lock_again(va, len, park_drop(segment, va, len));
    else if (rc && aside)
        tables_put_back(park, va, len);
    if (rc && !aside)
        sw_uffd_disarm(uffd, va, len);
    else
        sw_uffd_wake(uffd, va, len);
    return rc;
}

/* Raw calls that discard some of it will be told of. Where they cannot be, libc's are followed. */
static void follow_discards(const struct sw_segment *segment, uint64_t va, uint64_t len)
{
    const struct sw_uffd *telling = sw_adopt_monitor_of(segment);
    if (telling)
        sw_uffd_arm(telling, va, len, SW_UFFD_WRITES);
}

int sw_pages_take(struct sw_segment *segment, const struct sw_uffd *uffd, int prot,
                  uint64_t *done_bytes)
{
    uint64_t end = segment->va + segment->len_bytes;
    struct sw_copy copy;
    sigset_t all, saved;
    sigfillset(&all);

    *done_bytes = 0;
    int rc = sw_copy_open(&copy, segment);
    if (rc)
        return rc;
    /* Fails for memory that belongs to a userfaultfd of the program's. */
    rc = sw_uffd_arm(uffd, segment->va, segment->len_bytes, SW_UFFD_MISSING);
    if (rc) {
        sw_copy_close(&copy);
        return rc;
    }
    sw_uffd_disarm(uffd, segment->va, segment->len_bytes);
    /* One page, so that the private mapping has what it needs (an anon_vma, place in its imagined
     * file) to join its neighbours again when it returns. Where this is not possible it just will
     * not. */
    madvise(ptr_of(segment->va), (size_t)getpagesize(), MADV_POPULATE_WRITE);

    uint64_t at = segment->va;
    while (at < end) {
        uint64_t next = chunk_end(segment, at, end);
        sw_copy_prepare(&copy, at);
        pthread_sigmask(SIG_BLOCK, &all, &saved);
        rc = chunk_take(&copy, uffd, at, next - at, prot);
        pthread_sigmask(SIG_SETMASK, &saved, NULL);
        if (rc)
            break;
        lock_again(at, next - at, park_drop(segment, at, next - at));
        sw_copy_populate(&copy, at, next - at);
        /* Not before: pages that are mapped while armed for writes fault again at the first store,
         * and large ones are split by it. */
        follow_discards(segment, at, next - at);
        at = next;
    }
    sw_copy_close(&copy);
    *done_bytes = at - segment->va;
    return rc;
}

/* The memory of a chunk of the park, filled from the file, with its final protection. */
static int park_fill_chunk(const struct sw_segment *segment, uint64_t va, uint64_t len, int prot)
{
    void *park = ptr_of(park_of(segment, va));
    int rc = sw_copy_from_file(segment, va, park_of(segment, va), len, prot);
    if (!rc && mprotect(park, len, prot))
        rc = -errno;
    if (rc)
        madvise(park, len, MADV_DONTNEED);
    return rc;
}

/* Makes the park writable, with large pages, from `va` to the end of its window; *ready is how far.
 */
static int park_prepare(const struct sw_segment *segment, uint64_t va, uint64_t end, bool lean,
                        uint64_t *ready)
{
    if (va < *ready)
        return 0;
    *ready = grid_end(segment, va, end, SW_MOVE_WINDOW_BYTES);
    if (mprotect(ptr_of(park_of(segment, va)), *ready - va, PROT_READ | PROT_WRITE))
        return -errno;
    if (!lean)
        sw_copy_prepare_private(segment, va, park_of(segment, va), *ready - va);
    return 0;
}

/* Stops a chunk while a thread is about to discard some of it. The kernel protects nothing more for
 * that userfaultfd then, and as long as the thread waits, no other can discard unheard. So the page
 * tables are moved away: the file keeps its pages, and a thread that touches the chunk waits.
 * *aside is where the tables are. */
static int chunk_set_aside(const struct sw_segment *segment, const struct sw_uffd *telling,
                           uint64_t va, uint64_t len, uint64_t *aside)
{
    if (!sw_segment_fd_valid(segment))
        return -EBADF; /* there would be nothing to copy from */
    void *place = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED)
        return -errno;
    int rc = sw_uffd_arm(telling, va, len, SW_UFFD_MISSING | SW_UFFD_PRESENT | SW_UFFD_WRITES);
    if (!rc)
        rc = tables_move(va, (uint64_t)(uintptr_t)place, len);
    if (rc)
        munmap(place, len);
    else
        *aside = (uint64_t)(uintptr_t)place;
    return rc;
}

/* Protects a chunk of a file, and looks whether that is so. A store that hits a large page which is
 * mapped to be read makes the kernel unmap it for a moment. A protection that comes by in this
 * moment leaves the large page out, and says nothing of it: seen on Linux 6.18. -EAGAIN: it can't
 * be protected, somebody may be about to discard. */
static int file_protect(const struct sw_uffd *uffd, uint64_t va, uint64_t len)
{
    const int pagemap = sw_pagemap_open();
    if (pagemap < 0)
        return pagemap;
    int rc = 0, is_protected = 0;
    for (int tries = 0; !rc && !is_protected && tries < PROTECT_TRIES; tries++) {
        rc = sw_uffd_protect(uffd, va, len);
        if (!rc)
            is_protected = sw_pagemap_is_protected(pagemap, va, len);
    }
    sw_pagemap_close(pagemap);
    if (rc || is_protected < 0)
        return rc ? rc : is_protected;
    return is_protected ? 0 : -EAGAIN;
}

/* Stops stores to a chunk that is shared. */
static int chunk_stop(const struct sw_segment *segment, const struct sw_uffd *uffd, uint64_t va,
                      uint64_t len, uint64_t *aside)
{
    int rc = sw_uffd_arm(uffd, va, len, SW_UFFD_WRITES);
    if (rc || sw_page_move_unprotected)
        return rc;
    rc = file_protect(uffd, va, len);
    return rc == -EAGAIN ? chunk_set_aside(segment, uffd, va, len, aside) : rc;
}

static int chunk_return(const struct sw_segment *segment, const struct sw_uffd *uffd, uint64_t va,
                        uint64_t len, int prot)
{
    uint64_t aside = 0, done = 0;
    int rc = chunk_stop(segment, uffd, va, len, &aside);
    if (!rc)
        rc = park_fill_chunk(segment, va, len, prot);
    if (!rc)
        rc = tables_move_parts(park_of(segment, va), va, len, &done);
    if (rc && aside) /* not over what is private again, which may have been stored to */
        tables_put_back(aside + done, va + done, len - done);
    if (rc)
        sw_uffd_disarm(uffd, va, len);
    if (rc && uffd->tells)
        sw_uffd_arm(uffd, va, len, SW_UFFD_WRITES);
    sw_uffd_wake(uffd, va, len);
    if (aside)
        munmap(ptr_of(aside), len);
    return rc;
}

/* Frees the memory of the file now; a peer that still has it mapped sees zeros, never a SIGBUS. */
static void file_drop(const struct sw_segment *segment, uint64_t va, uint64_t len)
{
    if (sw_segment_fd_valid(segment))
        fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)page_move_offset_of(segment, va), (off_t)len);
}

int sw_pages_return(struct sw_segment *segment, const struct sw_uffd *uffd, uint64_t va,
                    uint64_t len_bytes, int prot, bool lean)
{
    const struct sw_uffd *telling = sw_adopt_monitor_of(segment);
    uffd = telling ? telling : uffd;
    if (!uffd->can_protect_shared)
        return -EOPNOTSUPP;
    sigset_t all, saved;
    uint64_t ready = va;
    sigfillset(&all);
    for (uint64_t at = va, next; at < va + len_bytes; at = next) {
        next = grid_end(segment, at, va + len_bytes, lean ? LEAN_CHUNK_BYTES : SW_MOVE_CHUNK_BYTES);
        int rc = park_prepare(segment, at, va + len_bytes, lean, &ready);
        const int lock = lock_of(at);
        if (!rc) {
            pthread_sigmask(SIG_BLOCK, &all, &saved);
            rc = chunk_return(segment, uffd, at, next - at, prot);
            pthread_sigmask(SIG_SETMASK, &saved, NULL);
        }
        if (rc) {
            sw_park_drop(segment, at, ready - at);
            return rc;
        }
        lock_again(at, next - at, lock);
        file_drop(segment, at, next - at);
    }
    return 0;
}

int sw_pages_discard(struct sw_segment *segment, uint64_t va, uint64_t len_bytes, int prot,
                     bool locked_too)
{
    for (uint64_t at = va, next; at < va + len_bytes; at = next) {
        next = chunk_end(segment, at, va + len_bytes);
        const int lock = lock_of(at);
        uint64_t done;
        if (lock != NOT_LOCKED && !locked_too)
            return -EINVAL;
        /* The park is empty: what takes the place of the shared pages reads as zeros. */
        int rc = mprotect(ptr_of(park_of(segment, at)), next - at, prot) ? -errno : 0;
        if (!rc)
            rc = tables_move_parts(park_of(segment, at), at, next - at, &done);
        if (rc)
            return rc;
        lock_again(at, next - at, lock);
        file_drop(segment, at, next - at);
    }
    return 0;
}

void sw_park_advise(const struct sw_segment *segment, uint64_t va, uint64_t len_bytes, int advice)
{
    madvise(ptr_of(park_of(segment, va)), len_bytes, advice);
}

int sw_park_fill(struct sw_segment *segment, uint64_t va, uint64_t len_bytes, int prot)
{
    uint64_t ready = va;
    for (uint64_t at = va, next; at < va + len_bytes; at = next) {
        next = chunk_end(segment, at, va + len_bytes);
        int rc = park_prepare(segment, at, va + len_bytes, false, &ready);
        if (!rc)
            rc = park_fill_chunk(segment, at, next - at, prot);
        if (rc) {
            sw_park_drop(segment, va, ready - va);
            return rc;
        }
    }
    return 0;
}

/* Whether the child has a page of the park: not of memory that was MADV_DONTFORK. */
static bool park_exists(const struct sw_segment *segment, uint64_t va)
{
    unsigned char resident;
    return !mincore(ptr_of(park_of(segment, va)), 1, &resident) || errno != ENOMEM;
}

void sw_park_swap_in(struct sw_segment *segment, uint64_t va, uint64_t len_bytes)
{
    const uint64_t page = (uint64_t)getpagesize();
    uint64_t step = len_bytes;
    for (uint64_t at = va, end = va + len_bytes; at < end;) {
        step = sw_min_u64(end - at, step);
        if (!tables_move(park_of(segment, at), at, step)) {
            at += step;
        } else if (step > page) {
            step = (step / 2 + page - 1) / page * page;
        } else {
            if (park_exists(segment, at))
                sw_error("fork: a page of registered memory is missing in the child");
            munmap(ptr_of(at), page);
            at += page;
        }
    }
}
