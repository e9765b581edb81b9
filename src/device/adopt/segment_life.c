/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/adopt/segment_life.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/log.h"
#include "base/mappable.h"
#include "base/minmax.h"
#include "device/adopt/adopt.h"
#include "device/adopt/adopt_lock.h"
#include "device/adopt/adopt_monitor.h"
#include "device/adopt/arena.h"
#include "device/adopt/keep.h"
#include "device/adopt/page_copy.h"
#include "device/adopt/page_move.h"
#include "device/adopt/pinned.h"
#include "device/adopt/segment.h"
#include "device/adopt/shared_file.h"
#include "device/adopt/thread_memory.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

/* What discarding may need of its caller's stack. */
#define OWN_STACK_BYTES (UINT64_C(256) << 10)

static void nothing_before(uint64_t va, uint64_t len_bytes)
{
    (void)va;
    (void)len_bytes;
}

static void nothing_after(void)
{
}

static const struct sw_adopt_guard no_guard = {nothing_before, nothing_before, nothing_after};
static const struct sw_adopt_guard *guard = &no_guard;

void sw_adopt_set_guard(const struct sw_adopt_guard *set)
{
    __atomic_store_n(&guard, set, __ATOMIC_RELEASE);
}

/* Frees a segment that is in no table and whose pages are mapped nowhere any more. */
void sw_segment_free(struct sw_segment *segment)
{
    sw_arena_leave(segment);
    if (segment->park)
        sw_park_release(segment);
    sw_segment_delete(segment);
}

/* Calls fn for what of a mapping is adopted and lies in [va, end). */
static int each_of_vma(struct sw_segment *only, const struct sw_vma *vma, uint64_t va, uint64_t end,
                       sw_segment_part_fn fn, void *arg)
{
    int rc = 0;
    for (struct sw_segment *s = only ? only : sw_segments_first(); !rc && s;
         s = only ? NULL : s->next) {
        uint64_t from, to;
        if (s->kind != SW_SEGMENT_ADOPTED || !sw_segment_overlap(s, vma, &from, &to))
            continue;
        from = sw_max_u64(from, va);
        to = sw_min_u64(to, end);
        if (from < to)
            rc = fn(s, vma, from, to, arg);
    }
    return rc;
}

/* Calls fn for each part of an adopted segment within [va, end) that still is mapped where it was
 * adopted, until one fails; `only` of one segment, unless that is NULL. Between them `others`,
 * unless that is NULL, for private memory. 0 or a negative errno. */
static int each_part_or(struct sw_segment *only, uint64_t va, uint64_t end, sw_segment_part_fn fn,
                        sw_segment_part_fn others, void *arg)
{
    struct sw_vma_reader reader;
    struct sw_vma vma;
    int found = 1, rc = 0, fd = sw_keep_open(SW_KEEP_MAPS);
    if (fd < 0)
        return fd;
    sw_vma_use(&reader, fd);
    for (uint64_t at = va; !rc && at < end; at = vma.end) {
        found = sw_vma_next(&reader, at, &vma);
        if (found != 1)
            break;
        if (vma.kind == SW_VMA_SHARED)
            rc = each_of_vma(only, &vma, va, end, fn, arg);
        else if (vma.kind == SW_VMA_ANON && vma.start < end && others)
            rc = others(NULL, &vma, sw_max_u64(vma.start, va), sw_min_u64(vma.end, end), arg);
    }
    sw_keep_close(fd);
    return rc ? rc : found < 0 ? found : 0;
}

static int each_part(struct sw_segment *only, uint64_t va, uint64_t end, sw_segment_part_fn fn,
                     void *arg)
{
    return each_part_or(only, va, end, fn, NULL, arg);
}

int sw_segments_each_part(sw_segment_part_fn fn, void *arg)
{
    sw_adopt_assert_locked();
    uint64_t start, end;
    sw_segments_bounds(&start, &end);
    return start < end ? each_part(NULL, start, end, fn, arg) : 0;
}

struct returning {
    const struct sw_uffd *uffd; /* NULL: pages cannot be moved now */
    bool lean;
    int rc;
};

/* Moves a part back, unless a thread has made its stack there since. The next is tried anyway. */
static int part_return(struct sw_segment *segment, const struct sw_vma *vma, uint64_t from,
                       uint64_t to, void *arg)
{
    struct returning *returning = arg;
    uint64_t stack, stack_end;
    if (!returning->uffd || sw_thread_memory_next(vma, from, to, &stack, &stack_end))
        returning->rc = -EBUSY;
    else if (sw_pages_return(segment, returning->uffd, from, to - from, vma->prot, returning->lean))
        returning->rc = -EBUSY;
    return 0;
}

/* True if nothing of the segment is shared any more. */
static bool segment_return(struct sw_segment *segment, const struct sw_uffd *uffd)
{
    struct returning returning = {.uffd = uffd};
    guard->before(segment->va, segment->len_bytes);
    int rc =
        each_part(segment, segment->va, segment->va + segment->len_bytes, part_return, &returning);
    guard->after();
    return !rc && !returning.rc;
}

static bool may_move(struct sw_uffd *uffd)
{
    return !sw_pinned_possible() && !sw_keep_uffd(uffd);
}

struct discarding {
    bool locked_too;
};

static int part_discard(struct sw_segment *segment, const struct sw_vma *vma, uint64_t from,
                        uint64_t to, void *arg)
{
    const struct discarding *discarding = arg;
    uint64_t own = (uint64_t)(uintptr_t)__builtin_frame_address(0);
    if (own + OWN_STACK_BYTES > from && own < to + OWN_STACK_BYTES)
        return -EBUSY; /* we stand on it */
    return sw_pages_discard(segment, from, to - from, vma->prot, discarding->locked_too);
}

/* The kernel stops at locked memory. Pages before it, it has discarded already. */
static int private_discard(struct sw_segment *segment, const struct sw_vma *vma, uint64_t from,
                           uint64_t to, void *arg)
{
    const struct discarding *discarding = arg;
    (void)segment, (void)vma, (void)to;
    return !discarding->locked_too && sw_pages_locked(from) ? -EINVAL : 0;
}

static int part_advise(struct sw_segment *segment, const struct sw_vma *vma, uint64_t from,
                       uint64_t to, void *arg)
{
    (void)vma;
    sw_park_advise(segment, from, to - from, *(const int *)arg);
    return 0;
}

bool sw_segments_withdraw(uint64_t va, uint64_t end, bool lean)
{
    sw_adopt_assert_locked();
    struct sw_uffd uffd;
    struct returning returning = {.uffd = NULL, .lean = lean};
    if (may_move(&uffd))
        returning.uffd = &uffd;
    guard->revoke(va, end - va);
    guard->before(va, end - va);
    int rc = each_part(NULL, va, end, part_return, &returning);
    guard->after();
    if (returning.uffd)
        sw_keep_close(uffd.fd);
    return !rc && !returning.rc;
}

void sw_segments_withdraw_group(unsigned int group)
{
    sw_adopt_assert_locked();
    struct sw_uffd uffd;
    struct returning returning = {.uffd = NULL, .lean = true};
    if (may_move(&uffd))
        returning.uffd = &uffd;
    for (struct sw_segment *s = sw_segments_first(); s; s = s->next) {
        if (s->kind != SW_SEGMENT_ADOPTED || sw_adopt_monitor_group(s) != group)
            continue;
        guard->revoke(s->va, s->len_bytes);
        guard->before(s->va, s->len_bytes);
        each_part(s, s->va, s->va + s->len_bytes, part_return, &returning);
        guard->after();
    }
    if (returning.uffd)
        sw_keep_close(uffd.fd);
}

void sw_segments_discard(uint64_t va, uint64_t end, bool locked_too)
{
    sw_adopt_assert_locked();
    struct discarding discarding = {.locked_too = locked_too};
    guard->revoke(va, end - va);
    guard->before(va, end - va);
    each_part_or(NULL, va, end, part_discard, private_discard, &discarding);
    guard->after();
}

/* The kernel itself may not do this: a mapping that became shorter while its caller was held up, it
 * discards no further than to its new end. */
static int private_zap(struct sw_segment *segment, const struct sw_vma *vma, uint64_t from,
                       uint64_t to, void *arg)
{
    const struct discarding *discarding = arg;
    const int advice = discarding->locked_too ? MADV_DONTNEED_LOCKED : MADV_DONTNEED;
    (void)segment, (void)vma;
    return madvise((void *)(uintptr_t)from, to - from, advice) && errno == EINVAL ? -EINVAL : 0;
}

void sw_segments_discard_held(const struct sw_held_call *call)
{
    sw_adopt_assert_locked();
    struct discarding discarding = {.locked_too = call->advice == MADV_DONTNEED_LOCKED};
    const uint64_t page = (uint64_t)getpagesize();
    const uint64_t end = call->va + (call->len_bytes + page - 1) / page * page;
    const bool discards =
        discarding.locked_too || call->advice == MADV_DONTNEED || call->advice == MADV_FREE;
    if (!discards || !sw_segments_may_overlap(call->va, end - call->va))
        return;
    guard->revoke(call->va, end - call->va);
    guard->before(call->va, end - call->va);
    each_part_or(NULL, call->va, end, part_discard,
                 call->advice == MADV_FREE ? private_discard : private_zap, &discarding);
    guard->after();
}

static int private_advise(struct sw_segment *segment, const struct sw_vma *vma, uint64_t from,
                          uint64_t to, void *arg)
{
    (void)segment, (void)vma;
    madvise((void *)(uintptr_t)from, to - from, *(const int *)arg);
    return 0;
}

void sw_segments_advise(uint64_t va, uint64_t end, int advice)
{
    sw_adopt_assert_locked();
    each_part_or(NULL, va, end, part_advise, private_advise, &advice);
}

/* Takes apart a segment without references: true if it is freed, false if pages are still shared
 * and it stays a remainder. */
bool sw_segment_release(struct sw_segment *segment, const struct sw_uffd *uffd)
{
    sw_adopt_assert_locked();
    if (segment->kind == SW_SEGMENT_ADOPTED && !segment_return(segment, uffd))
        return false;
    sw_segments_lock();
    sw_segments_remove(segment);
    sw_segments_unlock();
    sw_segment_free(segment);
    return true;
}

static atomic_bool dump_advised;

void sw_adopt_dump_advised(void)
{
    atomic_store(&dump_advised, true);
}

/* Adopts whole pages of private memory. NULL, with the reason, if that did not work. */
struct sw_segment *sw_segment_adopt(const struct sw_uffd *uffd, uint64_t start, uint64_t end,
                                    int prot, enum sw_handed_out handed, enum sw_adopt_reason *why)
{
    sw_adopt_assert_locked();
    struct sw_segment *segment = sw_segment_new();
    *why = SW_ADOPT_FAILED;
    if (!segment)
        return NULL;
    segment->kind = SW_SEGMENT_ADOPTED;
    segment->va = start;
    segment->len_bytes = end - start;
    enum sw_adopt_reason reason = sw_arena_enter(segment, handed);
    if (reason != SW_ADOPT_OK) {
        *why = reason;
        sw_segment_delete(segment);
        return NULL;
    }
    if (sw_park_reserve(segment)) {
        sw_segment_free(segment);
        return NULL;
    }
    uint64_t done = 0;
    sw_segments_lock();
    /* Before pages move, for callers that ask whether they may (adopt.c). */
    sw_segments_add(segment);
    sw_segments_unlock();
    const bool undumped = atomic_load(&dump_advised) && sw_vma_has_flag(start, " dd");
    guard->before(start, end - start);
    int rc = sw_pages_take(segment, uffd, prot, &done);
    guard->after();
    if (undumped)
        madvise((void *)(uintptr_t)start, end - start, MADV_DONTDUMP);
    if (rc) {
        sw_info("adoption of %llu bytes stopped after %llu: %s",
                (unsigned long long)segment->len_bytes, (unsigned long long)done, strerror(-rc));
        if (!sw_segment_release(segment, uffd))
            sw_warn("memory that was partly adopted stays shared");
        return NULL;
    }
    return segment;
}

/* A segment for the whole of a mapping that already is shared. */
struct sw_segment *sw_segment_share(const struct sw_vma *vma)
{
    sw_adopt_assert_locked();
    int fd = sw_fd_own(sw_shared_file_open(vma));
    if (fd < 0)
        return NULL;
    struct stat st;
    uint64_t page = (uint64_t)getpagesize();
    struct sw_segment *segment = sw_segment_new();
    uint64_t bytes;
    if (!segment || fstat(fd, &st) || !sw_mappable_bytes(&st, &bytes) || bytes <= vma->offset) {
        if (segment)
            sw_segment_delete(segment);
        close(fd);
        return NULL;
    }
    /* Behind the end of the file there is nothing to share. */
    uint64_t held = (bytes - vma->offset + page - 1) / page * page;
    uint64_t len = vma->end - vma->start;
    segment->kind = SW_SEGMENT_FOREIGN;
    segment->fd = fd;
    segment->dev = st.st_dev;
    segment->ino = st.st_ino;
    segment->va = vma->start;
    segment->len_bytes = sw_min_u64(len, held);
    segment->offset = vma->offset;
    return segment;
}

/* Moves back what nobody refers to any more, unless its pages may be pinned. */
void sw_segment_finish(struct sw_segment *segment)
{
    sw_adopt_assert_locked();
    struct sw_uffd uffd;
    bool movable = segment->kind == SW_SEGMENT_ADOPTED && may_move(&uffd);
    if (!sw_segment_release(segment, movable ? &uffd : NULL))
        sw_debug("segment %u stays shared for now", segment->id);
    if (movable)
        sw_keep_close(uffd.fd);
}

/* Tries again with one remainder, each time another one. */
void sw_segment_retry_remainder(void)
{
    sw_adopt_assert_locked();
    static uint32_t last_id; /* under the move lock */
    struct sw_segment *next = NULL, *lowest = NULL;
    sw_segments_lock();
    for (struct sw_segment *s = sw_segments_first(); s; s = s->next) {
        if (s->refs)
            continue;
        if (!lowest || s->id < lowest->id)
            lowest = s;
        if (s->id > last_id && (!next || s->id < next->id))
            next = s;
    }
    sw_segments_unlock();
    next = next ? next : lowest;
    if (next) {
        last_id = next->id;
        sw_segment_finish(next);
    }
}
