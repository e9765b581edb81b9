/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/adopt/walk.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/minmax.h"
#include "device/adopt/adopt_config.h"
#include "device/adopt/arena.h"
#include "device/adopt/keep.h"
#include "device/adopt/pinned.h"
#include "device/adopt/segment.h"
#include "device/adopt/segment_life.h"
#include "device/adopt/thread_memory.h"
#include "device/adopt/vma.h"

/* Each segment costs up to four mappings, of which a process has few (vm.max_map_count). */
#define SEGMENTS_MAX 4096
#define VMAS_AT_ONCE 32

static void leave_out(struct sw_walk *w, uint64_t len, enum sw_adopt_reason reason)
{
    if (len > w->why_bytes) {
        w->why = reason;
        w->why_bytes = len;
    }
}

/* Adds an extent and takes its reference, or lengthens the last one. */
static void walk_add(struct sw_walk *w, struct sw_segment *segment, uint64_t start, uint64_t end)
{
    struct sw_extent *last = w->count ? &w->extents[w->count - 1] : NULL;
    if (last && last->segment == segment && last->va + last->len_bytes == start) {
        last->len_bytes += end - start;
        return;
    }
    sw_segments_lock();
    segment->refs++;
    sw_segments_unlock();
    w->extents[w->count++] = (struct sw_extent){
        .va = start,
        .len_bytes = end - start,
        .offset = segment->offset + (start - segment->va),
        .segment = segment,
    };
}

enum sw_adopt_reason sw_uffd_reason(int err)
{
    return err == -EMFILE || err == -ENFILE || err == -ENOMEM ? SW_ADOPT_FAILED : SW_ADOPT_NO_UFFD;
}

/* Finds out, once for each registration that needs it, whether private memory may be moved now. */
static enum sw_adopt_reason walk_ready(struct sw_walk *w)
{
    if (w->ready)
        return w->refusal;
    w->ready = true;
    w->refusal = SW_ADOPT_OK;
    if (!sw_adopt_config()->enabled) {
        w->refusal = SW_ADOPT_DISABLED;
    } else if (sw_pinned_possible()) {
        w->refusal = SW_ADOPT_PINNED;
    } else {
        int rc = sw_keep_all(); /* what a fork will need */
        if (!rc)
            rc = sw_uffd_open(&w->uffd);
        if (rc)
            w->refusal = sw_uffd_reason(rc);
    }
    return w->refusal;
}

static bool within_limits(uint64_t len)
{
    sw_segments_lock();
    uint64_t bytes = sw_segments_adopted_bytes();
    int count = sw_segments_count();
    sw_segments_unlock();
    uint64_t max = sw_adopt_config()->max_bytes;
    return count < SEGMENTS_MAX && len <= max && bytes <= max - len;
}

/* [start, end) of private anonymous memory: whole pages, thread memory left out. */
static void walk_private(struct sw_walk *w, const struct sw_vma *vma, uint64_t start, uint64_t end)
{
    uint64_t page = (uint64_t)getpagesize();
    uint64_t first = (start + page - 1) / page * page;
    uint64_t last = end / page * page;
    if (first >= last) {
        leave_out(w, end - start, SW_ADOPT_PARTIAL_PAGE);
        return;
    }
    leave_out(w, first - start, SW_ADOPT_PARTIAL_PAGE);
    leave_out(w, end - last, SW_ADOPT_PARTIAL_PAGE);
    enum sw_adopt_reason why = SW_ADOPT_KIND;
    if (vma->prot & PROT_READ && !(vma->prot & PROT_EXEC))
        why = sw_arena_admits(w->handed) ? walk_ready(w) : SW_ADOPT_TOO_LARGE;
    if (why != SW_ADOPT_OK) {
        leave_out(w, last - first, why);
        return;
    }
    for (uint64_t at = first, from, to; at < last; at = to) {
        if (!sw_thread_memory_next(vma, at, last, &from, &to))
            from = to = last;
        leave_out(w, to - from, SW_ADOPT_KIND);
        if (from == at)
            continue;
        struct sw_segment *segment = NULL;
        why = SW_ADOPT_TOO_LARGE;
        if (w->count < w->max && within_limits(from - at))
            segment = sw_segment_adopt(&w->uffd, at, from, vma->prot, w->handed, &why);
        if (segment)
            walk_add(w, segment, at, from);
        else
            leave_out(w, from - at, why);
    }
}

/* The segment that is `vma` at `at`, made if need be; NULL with the reason if there is none. */
static struct sw_segment *segment_at(const struct sw_vma *vma, uint64_t at,
                                     enum sw_adopt_reason *why)
{
    sw_segments_lock();
    struct sw_segment *segment = sw_segments_match(vma, at);
    bool full =
        sw_segments_count() >= SEGMENTS_MAX || sw_segments_own_files() >= sw_arena_files_max();
    sw_segments_unlock();
    if (segment)
        return segment;
    *why = full ? SW_ADOPT_TOO_LARGE : SW_ADOPT_KIND;
    segment = full ? NULL : sw_segment_share(vma);
    if (!segment)
        return NULL;
    if (at >= segment->va + segment->len_bytes) {
        sw_segment_free(segment);
        return NULL;
    }
    sw_segments_lock();
    sw_segments_add(segment);
    sw_segments_unlock();
    return segment;
}

/* [start, end) of a shared mapping: of ours, or somebody else's. */
static void walk_shared(struct sw_walk *w, const struct sw_vma *vma, uint64_t start, uint64_t end)
{
    for (uint64_t at = start, to; at < end; at = to) {
        enum sw_adopt_reason why = SW_ADOPT_TOO_LARGE;
        to = end;
        struct sw_segment *segment = w->count < w->max ? segment_at(vma, at, &why) : NULL;
        if (segment && segment->va + segment->len_bytes < end)
            to = segment->va + segment->len_bytes;
        if (segment)
            walk_add(w, segment, at, to);
        else
            leave_out(w, to - at, why);
    }
}

static void walk_vma(struct sw_walk *w, const struct sw_vma *vma, uint64_t start, uint64_t end)
{
    switch (vma->kind) {
    case SW_VMA_ANON:
        walk_private(w, vma, start, end);
        return;
    case SW_VMA_SHARED:
        walk_shared(w, vma, start, end);
        return;
    case SW_VMA_OTHER:
        leave_out(w, end - start, SW_ADOPT_KIND);
        return;
    }
}

/* Reads the mappings of [at, end), as many as fit. Their number, or a negative errno. */
static int vmas_read(uint64_t at, uint64_t end, struct sw_vma *vmas, int max)
{
    struct sw_vma_reader reader;
    int rc = sw_vma_open(&reader, false);
    if (rc)
        return rc;
    int count = 0;
    while (count < max && at < end) {
        rc = sw_vma_next(&reader, at, &vmas[count]);
        if (rc <= 0 || vmas[count].start >= end)
            break;
        at = vmas[count++].end;
    }
    sw_vma_close(&reader);
    return rc < 0 ? rc : count;
}

/* Mappings are read some at a time and then worked on, because working on them changes the list. */
static void walk_vmas(struct sw_walk *w)
{
    struct sw_vma vmas[VMAS_AT_ONCE];
    for (uint64_t at = w->va; at < w->end;) {
        int count = vmas_read(at, w->end, vmas, VMAS_AT_ONCE);
        if (count <= 0) {
            leave_out(w, w->end - at, count ? SW_ADOPT_FAILED : SW_ADOPT_KIND);
            return;
        }
        for (int i = 0; i < count; i++) {
            uint64_t start = sw_max_u64(vmas[i].start, at);
            uint64_t end = sw_min_u64(vmas[i].end, w->end);
            leave_out(w, start - at, SW_ADOPT_KIND);
            walk_vma(w, &vmas[i], start, end);
            at = end;
        }
    }
}

void sw_walk_all(struct sw_walk *w)
{
    walk_vmas(w);
    if (w->ready && w->refusal == SW_ADOPT_OK)
        sw_uffd_close(&w->uffd);
}
