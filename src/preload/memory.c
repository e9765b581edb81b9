/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hooks of the calls that change memory in a way that depends on what kind it is. Memory that a
 * program allocated as private may be adopted (device/adopt/adopt.h), and must still behave as
 * private memory does. mprotect, mlock, munmap, mmap and mincore do the same to either kind.
 *
 * Allocators call these, at any time, with their locks held: nothing here allocates. Before this
 * library is set up the system call is made as it is.
 */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "base/minmax.h"
#include "device/adopt/adopt.h"
#include "preload/real.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

#define DISCARD_TRIES 100

static int real_madvise(void *addr, size_t len, int advice)
{
    void *real = atomic_load_explicit(&sw_real_table[SW_REAL_madvise], memory_order_relaxed);
    return real ? ((__typeof__(&madvise))real)(addr, len, advice)
                : (int)syscall(SYS_madvise, addr, len, advice);
}

enum effect {
    EFFECT_SAME,     /* the same on shared memory */
    EFFECT_DISCARDS, /* the pages read as zeros afterwards */
    EFFECT_MARKS,    /* the mapping, with something that shared memory can have as well */
    EFFECT_OTHER,    /* only right on private memory */
};

static enum effect effect_of(int advice)
{
    switch (advice) {
    case MADV_WILLNEED:
    case MADV_COLD:
    case MADV_PAGEOUT:
    case MADV_POPULATE_READ:
    case MADV_POPULATE_WRITE:
        return EFFECT_SAME;
    case MADV_DONTNEED:
    case MADV_DONTNEED_LOCKED:
    case MADV_FREE:
        return EFFECT_DISCARDS;
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_DONTDUMP:
    case MADV_DODUMP:
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
        return EFFECT_MARKS;
    default:
        return EFFECT_OTHER;
    }
}

/* Whole pages, as the kernel takes them; false where it takes the call for none. */
static bool whole_pages(const void *addr, size_t len, uint64_t *va, uint64_t *bytes)
{
    const uint64_t page = (uint64_t)getpagesize();
    *va = (uintptr_t)addr;
    *bytes = (len + page - 1) / page * page;
    return *va % page == 0 && *bytes >= len && *bytes > 0 && *va + *bytes > *va;
}

static bool for_forks(int advice)
{
    return advice == MADV_WIPEONFORK || advice == MADV_KEEPONFORK || advice == MADV_DONTFORK ||
           advice == MADV_DOFORK;
}

/* Pages that stay shared come back as they are advised now. */
static int advise_pinned(void *addr, size_t len, int advice, uint64_t va, uint64_t bytes)
{
    if (advice == MADV_REMOVE) { /* of a shared file it would free the pages */
        errno = EINVAL;
        return -1;
    }
    sw_adopt_advise(va, bytes, advice);
    if (!for_forks(advice))
        return real_madvise(addr, len, advice);
    return msync(addr, bytes, MS_ASYNC); /* which sees holes, as madvise() does */
}

static int advise_adopted(void *addr, size_t len, int advice, uint64_t va, uint64_t bytes)
{
    switch (effect_of(advice)) {
    case EFFECT_SAME:
    case EFFECT_DISCARDS: /* when it has been advised */
        break;
    case EFFECT_MARKS:
        sw_adopt_advise(va, bytes, advice);
        break;
    case EFFECT_OTHER:
        return sw_adopt_withdraw(va, bytes) ? real_madvise(addr, len, advice)
                                            : advise_pinned(addr, len, advice, va, bytes);
    }
    return real_madvise(addr, len, advice);
}

/*
 * Adopted memory is discarded first, so that the monitor has nothing to hear of
 * (device/adopt/adopt_monitor.h). If any page was moved while the kernel was at it, all of it is
 * done once more: what was just being adopted the kernel did not find, and where pages came back
 * while it waited for the monitor, it left out the rest.
 */
static int discard_pages(void *addr, size_t len, int advice, uint64_t va, uint64_t bytes)
{
    for (int tries = 0;; tries++) {
        if (sw_adopt_may_overlap(va, bytes))
            sw_adopt_discard(va, bytes, advice == MADV_DONTNEED_LOCKED);
        const unsigned int before = sw_adopt_moves();
        const int rc = real_madvise(addr, len, advice);
        if (tries == DISCARD_TRIES || before == sw_adopt_moves())
            return rc;
    }
}

SW_HOOK int madvise(void *addr, size_t len, int advice)
{
    uint64_t va, bytes;
    if (advice == MADV_DONTDUMP)
        sw_adopt_dump_advised();
    const bool discards = effect_of(advice) == EFFECT_DISCARDS;
    const bool valid = whole_pages(addr, len, &va, &bytes);
    if (!discards && valid && sw_adopt_may_overlap(va, bytes))
        return advise_adopted(addr, len, advice, va, bytes);
    return discards && valid ? discard_pages(addr, len, advice, va, bytes)
                             : real_madvise(addr, len, advice);
}

SW_HOOK void *mremap(void *addr, size_t old_len, size_t new_len, int flags, ...)
{
    uint64_t va, bytes;
    void *to = NULL; /* where it must go */
    if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) {
        va_list args;
        va_start(args, flags);
        to = va_arg(args, void *);
        va_end(args);
    }
    /* With length 0 it makes a second mapping of shared memory; of private memory that is
     * invalid. */
    if (whole_pages(addr, old_len ? old_len : 1, &va, &bytes) && sw_adopt_may_overlap(va, bytes) &&
        !sw_adopt_withdraw(va, bytes) && (to || new_len > old_len)) {
        errno = ENOMEM; /* shared, it would be shared there, too; the caller then copies */
        return MAP_FAILED;
    }
    void *real = atomic_load_explicit(&sw_real_table[SW_REAL_mremap], memory_order_relaxed);
    return real ? ((__typeof__(&mremap))real)(addr, old_len, new_len, flags, to)
                : (void *)syscall(SYS_mremap, addr, old_len, new_len, flags, to);
}

#ifdef SYS_process_madvise
#define PARTS_AT_ONCE 16

/* The parts may be of any process: pages of ours at the same addresses just become private. The
 * list is read by a system call, as it may not be there. */
static void withdraw_parts(const struct iovec *parts, size_t count)
{
    struct iovec some[PARTS_AT_ONCE];
    for (size_t at = 0; at < count && at < IOV_MAX; at += PARTS_AT_ONCE) {
        const size_t n = sw_min_size(count - at, PARTS_AT_ONCE);
        struct iovec to = {some, n * sizeof(*some)};
        struct iovec from = {(void *)(uintptr_t)(parts + at), n * sizeof(*some)};
        if (syscall(SYS_process_vm_readv, getpid(), &to, 1, &from, 1, 0) != (long)to.iov_len)
            return;
        for (size_t i = 0; i < n; i++) {
            uint64_t va, bytes;
            if (whole_pages(some[i].iov_base, some[i].iov_len, &va, &bytes) &&
                sw_adopt_may_overlap(va, bytes))
                sw_adopt_withdraw(va, bytes);
        }
    }
}

SW_HOOK ssize_t process_madvise(int pidfd, const struct iovec *parts, size_t count, int advice,
                                unsigned int flags)
{
    if (effect_of(advice) != EFFECT_SAME && sw_adopt_may_overlap(0, UINT64_MAX))
        withdraw_parts(parts, count);
    return syscall(SYS_process_madvise, pidfd, parts, count, advice, flags);
}
#endif
