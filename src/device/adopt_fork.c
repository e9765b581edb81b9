/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Adopted memory and fork(2): the child gets private memory with what was in it at the fork.
 *
 * The parent makes the copy, in the place where the private mapping waits (the park), before the
 * fork; afterwards the child swaps it in and the parent drops it. So nobody waits for another
 * process, the child only makes a few system calls, and what the program said about the mapping
 * (MADV_DONTFORK, MADV_WIPEONFORK) acts on the copy as it should.
 *
 * The handlers are installed when the library is loaded, so that they run next to the fork itself:
 * after the program's own prepare handlers have quiesced its threads, and before its child and
 * parent handlers. They allocate nothing: an allocator's own handlers may have locked it.
 */
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

#include "base/log.h"
#include "device/adopt_lock.h"
#include "device/page_move.h"
#include "device/segment.h"
#include "device/vma.h"

typedef void (*part_fn)(struct sw_segment *segment, uint64_t va, uint64_t len_bytes, int prot);

/* Calls fn for each part of the segment that still is mapped where it was adopted. */
static void each_part(struct sw_vma_reader *reader, struct sw_segment *segment, part_fn fn)
{
    struct sw_vma vma;
    uint64_t end = segment->va + segment->len_bytes;
    for (uint64_t at = segment->va; at < end && sw_vma_next(reader, at, &vma) == 1; at = vma.end) {
        uint64_t from, to;
        if (sw_segment_overlap(segment, &vma, &from, &to))
            fn(segment, from, to - from, vma.prot);
    }
}

/* Readers want ascending addresses and segments come in any order: one reader each. */
static void each_adopted(part_fn fn)
{
    struct sw_vma_reader reader;
    for (struct sw_segment *s = sw_segments_first(); s; s = s->next) {
        if (s->kind != SW_SEGMENT_ADOPTED)
            continue;
        if (sw_vma_open(&reader, false)) {
            sw_error("fork: cannot read /proc/self/maps, the child will share registered memory");
            return;
        }
        each_part(&reader, s, fn);
        sw_vma_close(&reader);
    }
}

static void part_copy(struct sw_segment *segment, uint64_t va, uint64_t len_bytes, int prot)
{
    if (sw_park_fill(segment, va, len_bytes, prot))
        sw_warn("fork: no memory for the child's copy of %llu registered bytes",
                (unsigned long long)len_bytes);
}

static void part_drop(struct sw_segment *segment, uint64_t va, uint64_t len_bytes, int prot)
{
    (void)prot;
    sw_park_drop(segment, va, len_bytes);
}

static void fork_prepare(void)
{
    sw_adopt_lock();
    each_adopted(part_copy);
    sw_segments_lock();
}

static void fork_parent(void)
{
    sw_segments_unlock();
    each_adopted(part_drop);
    sw_adopt_unlock();
}

static void fork_child(void)
{
    each_adopted(sw_park_swap_in);
    for (struct sw_segment *s = sw_segments_first(); s; s = s->next) {
        if (sw_segment_fd_valid(s))
            close(s->fd);
        if (s->kind == SW_SEGMENT_ADOPTED)
            sw_park_release(s);
        s->kind =
            SW_SEGMENT_LOST; /* and not freed: the parent's regions in this copy point to it */
        s->fd = -1;
    }
    sw_segments_forget_all();
    sw_segments_unlock();
    sw_adopt_unlock();
}

void sw_adopt_fork_install(void)
{
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}
