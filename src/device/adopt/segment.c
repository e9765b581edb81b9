/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/adopt/segment.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/lock.h"
#include "base/minmax.h"
#include "device/adopt/adopt.h"
#include "device/adopt/arena.h"
#include "device/rules/pub.h"

static struct {
    struct sw_lock lock;
    struct sw_segment *first;
    int count;
    uint32_t last_id;
} table;

/* With the move lock held: */
static struct sw_segment *free_segments;

#define SLAB_BYTES (64u << 10)

static void slab_add(void)
{
    struct sw_segment *slab =
        mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; slab != MAP_FAILED && i < SLAB_BYTES / sizeof(*slab); i++)
        sw_segment_delete(&slab[i]);
}

struct sw_segment *sw_segment_new(void)
{
    if (!free_segments)
        slab_add();
    struct sw_segment *segment = free_segments;
    if (!segment)
        return NULL;
    free_segments = segment->next;
    *segment = (struct sw_segment){.fd = -1};
    return segment;
}

void sw_segment_delete(struct sw_segment *segment)
{
    segment->next = free_segments;
    free_segments = segment;
}

void sw_segments_lock(void)
{
    sw_lock_acquire(&table.lock);
}

void sw_segments_unlock(void)
{
    sw_lock_release(&table.lock);
}

struct sw_segment *sw_segments_first(void)
{
    return table.first;
}

/* Between the lowest and the highest adopted address. Written under the table lock. */
static struct {
    _Atomic uint64_t start;
    _Atomic uint64_t end;
} bounds = {UINT64_MAX, 0};

static void bounds_update(void)
{
    uint64_t start = UINT64_MAX, end = 0;
    for (struct sw_segment *s = table.first; s; s = s->next) {
        if (s->kind != SW_SEGMENT_ADOPTED)
            continue;
        start = sw_min_u64(s->va, start);
        end = sw_max_u64(s->va + s->len_bytes, end);
    }
    atomic_store(&bounds.start, start);
    atomic_store(&bounds.end, end);
}

void sw_segments_bounds(uint64_t *start, uint64_t *end)
{
    *start = atomic_load(&bounds.start);
    *end = atomic_load(&bounds.end);
}

bool sw_segments_may_overlap(uint64_t va, uint64_t len_bytes)
{
    if (__builtin_expect(va >= atomic_load_explicit(&bounds.end, memory_order_acquire), 1))
        return false;
    const uint64_t start = atomic_load_explicit(&bounds.start, memory_order_relaxed);
    if (start >= va && start - va >= len_bytes)
        return false;
    bool found = false;
    sw_segments_lock();
    for (struct sw_segment *s = table.first; s && !found; s = s->next)
        found = s->kind == SW_SEGMENT_ADOPTED &&
                (s->va > va ? s->va - va < len_bytes : va - s->va < s->len_bytes);
    sw_segments_unlock();
    return found;
}

static bool id_taken(uint32_t id)
{
    for (struct sw_segment *s = table.first; s; s = s->next) {
        if (s->id == id)
            return true;
    }
    return false;
}

void sw_segments_add(struct sw_segment *segment)
{
    sw_lock_assert_held(&table.lock);
    do {
        table.last_id++;
    } while (table.last_id == 0 || id_taken(table.last_id));
    segment->id = table.last_id;
    segment->next = table.first;
    table.first = segment;
    table.count++;
    bounds_update();
}

void sw_segments_remove(struct sw_segment *segment)
{
    sw_lock_assert_held(&table.lock);
    struct sw_segment **at = &table.first;
    while (*at != segment)
        at = &(*at)->next;
    *at = segment->next;
    table.count--;
    bounds_update();
}

void sw_segments_forget_all(void)
{
    sw_lock_assert_held(&table.lock);
    table.first = NULL;
    table.count = 0;
    bounds_update();
}

int sw_segments_count(void)
{
    return table.count;
}

int sw_segments_own_files(void)
{
    int count = 0;
    for (struct sw_segment *s = table.first; s; s = s->next)
        count += !s->arena;
    return count;
}

uint64_t sw_segments_adopted_bytes(void)
{
    uint64_t sum = 0;
    for (struct sw_segment *s = table.first; s; s = s->next)
        sum += s->kind == SW_SEGMENT_ADOPTED ? s->len_bytes : 0;
    return sum;
}

bool sw_segment_overlap(const struct sw_segment *segment, const struct sw_vma *vma, uint64_t *start,
                        uint64_t *end)
{
    if (vma->kind != SW_VMA_SHARED || vma->ino != segment->ino ||
        vma->dev_major != major(segment->dev) || vma->dev_minor != minor(segment->dev))
        return false;
    if (vma->start - vma->offset != segment->va - segment->offset)
        return false;
    uint64_t segment_end = segment->va + segment->len_bytes;
    *start = sw_max_u64(vma->start, segment->va);
    *end = sw_min_u64(vma->end, segment_end);
    return *start < *end;
}

struct sw_segment *sw_segments_match(const struct sw_vma *vma, uint64_t at)
{
    for (struct sw_segment *s = table.first; s; s = s->next) {
        uint64_t start, end;
        if (sw_segment_overlap(s, vma, &start, &end) && start <= at && at < end)
            return s;
    }
    return NULL;
}

bool sw_segment_fd_valid(const struct sw_segment *segment)
{
    struct stat st;
    return !fstat(segment->fd, &st) && st.st_dev == segment->dev && st.st_ino == segment->ino;
}

uint32_t sw_segment_id(const struct sw_segment *segment)
{
    return segment->id;
}

int sw_segment_fd(const struct sw_segment *segment)
{
    return sw_segment_fd_valid(segment) ? segment->fd : -1;
}

void sw_segment_grant(struct sw_segment *segment, uint32_t handed)
{
    uint32_t now = atomic_load(&segment->handed);
    while (now < handed && !atomic_compare_exchange_weak(&segment->handed, &now, handed)) {
    }
}

int sw_segment_hand_out(const struct sw_segment *segment)
{
    const uint32_t most = sw_arena_handed(segment), rights = atomic_load(&segment->handed);
    const uint32_t handed = sw_min_u32(rights, most);
    if (handed == SW_HANDED_OUT_NOT || !sw_segment_fd_valid(segment))
        return -1;
    if (handed == SW_HANDED_OUT_WRITE)
        return fcntl(segment->fd, F_DUPFD_CLOEXEC, 0);
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", segment->fd);
    return open(path, O_RDONLY | O_CLOEXEC);
}

void sw_segment_file_range(const struct sw_segment *segment, uint64_t *offset, uint64_t *len_bytes)
{
    *offset = segment->offset;
    *len_bytes = segment->len_bytes;
}

struct sw_segment *sw_segment_find(uint32_t id)
{
    sw_lock_acquire(&table.lock);
    struct sw_segment *found = table.first;
    while (found && !(found->id == id && found->refs))
        found = found->next;
    if (found)
        found->refs++;
    sw_lock_release(&table.lock);
    return found;
}
