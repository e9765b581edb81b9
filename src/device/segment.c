/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/segment.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/lock.h"
#include "device/adopt.h"

static struct {
    struct sw_lock lock;
    struct sw_segment *first;
    int count;
    uint32_t last_id;
} table;

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
    do {
        table.last_id++;
    } while (table.last_id == 0 || id_taken(table.last_id));
    segment->id = table.last_id;
    segment->next = table.first;
    table.first = segment;
    table.count++;
}

void sw_segments_remove(struct sw_segment *segment)
{
    struct sw_segment **at = &table.first;
    while (*at != segment)
        at = &(*at)->next;
    *at = segment->next;
    table.count--;
}

void sw_segments_forget_all(void)
{
    table.first = NULL;
    table.count = 0;
}

int sw_segments_count(void)
{
    return table.count;
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
    *start = vma->start > segment->va ? vma->start : segment->va;
    *end = vma->end < segment_end ? vma->end : segment_end;
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
