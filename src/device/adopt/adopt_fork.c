/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Adopted memory and fork(2): the child gets private memory with what was in it at the fork.
 *
 * The parent makes the copy, in the place where the private mapping waits (the park), as it enters
 * the clone: libc has locked malloc by then, whose lists may lie on such pages. Afterwards the
 * child swaps the copy in and the parent drops it. So nobody waits for another process, the child
 * only makes a few system calls, and what the program said about the mapping (MADV_DONTFORK,
 * MADV_WIPEONFORK) acts on the copy as it should. No child inherits the shared mapping itself: what
 * could not be copied is not there.
 *
 * The handlers are installed when the library is loaded, so that they run next to the fork itself:
 * after the program's own prepare handlers have quiesced its threads, and before its child and
 * parent handlers. They allocate nothing: an allocator's own handlers may have locked it.
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/held_signals.h"
#include "base/log.h"
#include "device/adopt/adopt_lock.h"
#include "device/adopt/adopt_monitor.h"
#include "device/adopt/arena.h"
#include "device/adopt/fork_fault.h"
#include "device/adopt/fork_moment.h"
#include "device/adopt/keep.h"
#include "device/adopt/memory_room.h"
#include "device/adopt/page_move.h"
#include "device/adopt/segment.h"
#include "device/adopt/segment_life.h"
#include "device/adopt/vma.h"

/* Below this, copies are made without looking how much memory there is. */
#define COPY_UNASKED_BYTES (UINT64_C(1) << 20)

/* A part of a segment that still is mapped where it was adopted. */
struct part {
    struct sw_segment *segment;
    uint64_t va;
    uint64_t len_bytes;
    int prot;
    bool copied; /* the park holds what the child gets */
};

/* Parts of the fork under way; mapped for it, as nothing may be allocated. */
static struct {
    struct part *parts;
    size_t max;
    size_t count;
    sigset_t mask; /* before it */
} forking;

static int part_count(struct sw_segment *segment, const struct sw_vma *vma, uint64_t from,
                      uint64_t to, void *arg)
{
    (void)segment, (void)vma, (void)from, (void)to;
    ++*(size_t *)arg;
    return 0;
}

static int part_note(struct sw_segment *segment, const struct sw_vma *vma, uint64_t from,
                     uint64_t to, void *arg)
{
    (void)arg;
    if (forking.count < forking.max)
        forking.parts[forking.count++] = (struct part){segment, from, to - from, vma->prot, false};
    return 0;
}

static bool parts_find(void)
{
    size_t count = 0;
    forking.count = 0;
    if (sw_segments_each_part(part_count, &count))
        return false;
    if (!count)
        return true;
    void *table = mmap(NULL, count * sizeof(struct part), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED)
        return false;
    forking.parts = table;
    forking.max = count;
    return !sw_segments_each_part(part_note, NULL);
}

static void parts_forget(void)
{
    if (forking.parts)
        munmap(forking.parts, forking.max * sizeof(struct part));
    forking.parts = NULL;
    forking.count = forking.max = 0;
}

/* What a copy of all that is adopted takes. */
static uint64_t bytes_needed(void)
{
    uint64_t needed = sw_arenas_bytes();
    for (struct sw_segment *s = sw_segments_first(); s; s = s->next) {
        struct stat st;
        if (s->kind == SW_SEGMENT_ADOPTED && !s->arena && !fstat(s->fd, &st))
            needed += (uint64_t)st.st_blocks * 512;
    }
    return needed;
}

/* A copy that does not fit would get a process killed, likely for a child that only calls exec. So
 * the pages become private again: then the kernel copies, and only what is stored to. */
static void adopt_fork_make_room(void)
{
    uint64_t start, end, needed = bytes_needed();
    if (needed < COPY_UNASKED_BYTES)
        return;
    uint64_t room = sw_memory_room();
    if (room != SW_MEMORY_ROOM_UNKNOWN && needed < room)
        return;
    sw_segments_bounds(&start, &end);
    bool all = sw_segments_withdraw(start, end, true);
    sw_info("fork: no room for a copy of %llu registered bytes: they are %sprivate again",
            (unsigned long long)needed, all ? "" : "not all ");
}

static void adopt_fork_copy_all(void)
{
    uint64_t missing = 0;
    if (!parts_find())
        sw_error("fork: the parts of registered memory cannot be found; the child has none of it");
    const uint64_t needed = bytes_needed();
    const bool fits = needed < COPY_UNASKED_BYTES || needed < sw_memory_room();
    for (size_t i = 0; i < forking.count; i++) {
        struct part *part = &forking.parts[i];
        part->copied = fits && !sw_park_fill(part->segment, part->va, part->len_bytes, part->prot);
        missing += part->copied ? 0 : part->len_bytes;
    }
    if (missing)
        sw_error("fork: no memory for a copy of %llu registered bytes, which may not move: the "
                 "child does not have them",
                 (unsigned long long)missing);
}

/* The child's own memory takes its places. */
static void parts_swap_in(void)
{
    for (size_t i = 0; i < forking.count; i++) {
        struct part *part = &forking.parts[i];
        if (part->copied)
            sw_park_swap_in(part->segment, part->va, part->len_bytes);
        part->copied = false;
    }
}

/* In a child that cannot wait for its handler: whether its memory is there now. */
static bool adopt_fork_mend(const void *address)
{
    const uint64_t va = (uint64_t)(uintptr_t)address;
    for (size_t i = 0; i < forking.count; i++) {
        const struct part *part = &forking.parts[i];
        if (part->copied && va >= part->va && va - part->va < part->len_bytes) {
            parts_swap_in();
            return true;
        }
    }
    return false;
}

static void adopt_fork_prepare(void)
{
    uint64_t start, end;
    sigset_t mask;
    sw_signals_hold(&mask);
    sw_adopt_lock();
    forking.mask = mask;
    adopt_fork_make_room();
    sw_segments_bounds(&start, &end);
    sw_segments_lock();
    if (start >= end)
        return;
    sw_fork_fault_watch(adopt_fork_mend);
    if (!sw_fork_moment_watch(adopt_fork_copy_all))
        adopt_fork_copy_all();
}

static void adopt_fork_parent(void)
{
    const sigset_t mask = forking.mask;
    sw_fork_moment_end();
    sw_fork_fault_end();
    sw_segments_unlock();
    for (struct sw_segment *s = sw_segments_first(); s; s = s->next) {
        if (s->kind == SW_SEGMENT_ADOPTED)
            sw_park_drop(s, s->va, s->len_bytes);
    }
    parts_forget();
    sw_adopt_unlock();
    sw_signals_let_go_held(&mask);
}

static void adopt_fork_child(void)
{
    parts_swap_in();
    sw_fork_moment_end();
    sw_fork_fault_end();
    parts_forget();
    sw_keep_forget();
    sw_adopt_monitor_forget();
    for (struct sw_segment *s = sw_segments_first(); s; s = s->next) {
        if (!s->arena && sw_segment_fd_valid(s))
            close(s->fd);
        if (s->kind == SW_SEGMENT_ADOPTED)
            sw_park_release(s);
        s->kind =
            SW_SEGMENT_LOST; /* and not freed: the parent's regions in this copy point to it */
        s->fd = -1;
        s->arena = NULL;
    }
    sw_arenas_forget();
    sw_segments_forget_all();
    sw_segments_unlock();
    sw_adopt_unlock();
    sw_signals_let_go_held(&forking.mask);
}

void sw_adopt_fork_install(void)
{
    pthread_atfork(adopt_fork_prepare, adopt_fork_parent, adopt_fork_child);
}
