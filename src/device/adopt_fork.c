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
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "device/adopt_lock.h"
#include "device/page_move.h"
#include "device/segment.h"
#include "device/vma.h"

/* Below this, copies are made without looking how much memory there is. */
#define COPY_UNASKED_BYTES (UINT64_C(64) << 20)

typedef void (*part_fn)(struct sw_segment *segment, uint64_t va, uint64_t len_bytes, int prot);

static void each_of_vma(const struct sw_vma *vma, part_fn fn)
{
    for (struct sw_segment *s = sw_segments_first(); s; s = s->next) {
        uint64_t from, to;
        if (s->kind == SW_SEGMENT_ADOPTED && sw_segment_overlap(s, vma, &from, &to))
            fn(s, from, to - from, vma->prot);
    }
}

/* Calls fn for each part of an adopted segment that still is mapped where it was adopted, in one
 * walk over the mappings: there may be thousands of both. */
static void each_part(part_fn fn)
{
    struct sw_vma_reader reader;
    struct sw_vma vma;
    uint64_t at = UINT64_MAX, end = 0;
    for (struct sw_segment *s = sw_segments_first(); s; s = s->next) {
        if (s->kind != SW_SEGMENT_ADOPTED)
            continue;
        at = s->va < at ? s->va : at;
        end = s->va + s->len_bytes > end ? s->va + s->len_bytes : end;
    }
    if (at >= end)
        return;
    if (sw_vma_open(&reader, false)) {
        sw_error("fork: cannot read /proc/self/maps, the child shares registered memory");
        return;
    }
    for (; at < end && sw_vma_next(&reader, at, &vma) == 1; at = vma.end) {
        if (vma.kind == SW_VMA_SHARED)
            each_of_vma(&vma, fn);
    }
    sw_vma_close(&reader);
}

static void part_copy(struct sw_segment *segment, uint64_t va, uint64_t len_bytes, int prot)
{
    if (segment->fork_copied && sw_park_fill(segment, va, len_bytes, prot))
        segment->fork_copied = false;
}

/* "MemAvailable" of /proc/meminfo, proc(5); UINT64_MAX if it cannot be read. */
static uint64_t memory_available(void)
{
    char text[512], *found;
    unsigned long long kib;
    int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    text[len > 0 ? len : 0] = '\0';
    found = strstr(text, "MemAvailable:");
    return found && sscanf(found, "MemAvailable: %llu", &kib) == 1 ? kib * 1024 : UINT64_MAX;
}

/* A copy that does not fit would get a process killed, likely for a child that only calls exec. */
static void copy_all(void)
{
    uint64_t needed = 0;
    for (struct sw_segment *s = sw_segments_first(); s; s = s->next) {
        struct stat st;
        if (s->kind == SW_SEGMENT_ADOPTED && !fstat(s->fd, &st))
            needed += (uint64_t)st.st_blocks * 512;
    }
    bool fits = needed < COPY_UNASKED_BYTES || needed < memory_available();
    for (struct sw_segment *s = sw_segments_first(); s; s = s->next)
        s->fork_copied = fits;
    each_part(part_copy);
    for (struct sw_segment *s = sw_segments_first(); s; s = s->next) {
        if (s->kind == SW_SEGMENT_ADOPTED && !s->fork_copied)
            sw_warn("fork: no memory for a copy of %llu registered bytes: the child will see what "
                    "the parent stores there",
                    (unsigned long long)s->len_bytes);
    }
}

static void fork_prepare(void)
{
    sw_adopt_lock();
    copy_all();
    sw_segments_lock();
}

static void fork_parent(void)
{
    sw_segments_unlock();
    for (struct sw_segment *s = sw_segments_first(); s; s = s->next) {
        if (s->kind == SW_SEGMENT_ADOPTED)
            sw_park_drop(s, s->va, s->len_bytes);
    }
    sw_adopt_unlock();
}

static void fork_child(void)
{
    each_part(sw_park_swap_in);
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
