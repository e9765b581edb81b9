/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/faults/line.h"

#include <stdlib.h>
#include <string.h>

static bool line_is_before(const struct sw_held *one, const struct sw_held *other)
{
    return one->due_ns != other->due_ns ? one->due_ns < other->due_ns
                                        : one->sequence < other->sequence;
}

static bool line_make_room(struct sw_fault_line *line)
{
    if (line->count < line->room)
        return true;
    uint32_t room = line->room ? line->room * 2 : 64;
    if (room > SW_FAULT_LINE_MAX)
        return false;
    struct sw_held **heap = realloc(line->heap, room * sizeof(struct sw_held *));
    if (!heap)
        return false;
    line->heap = heap;
    line->room = room;
    return true;
}

static void append_bytes(uint8_t *to, const void *from, uint32_t len)
{
    if (len)
        memcpy(to, from, len);
}

bool sw_fault_line_put(struct sw_fault_line *line, uint64_t due_ns, const void *path,
                       uint32_t path_len, const void *packet, uint32_t packet_len)
{
    struct sw_held *held = NULL;
    if (line_make_room(line))
        held = malloc(sizeof(*held) + (size_t)path_len + packet_len);
    if (!held) {
        line->refused++;
        return false;
    }
    held->due_ns = due_ns;
    held->sequence = line->sequence++;
    held->path_len = path_len;
    held->packet_len = packet_len;
    append_bytes(held->bytes, path, path_len);
    append_bytes(held->bytes + path_len, packet, packet_len);
    uint32_t at = line->count++;
    for (; at && line_is_before(held, line->heap[(at - 1) / 2]); at = (at - 1) / 2)
        line->heap[at] = line->heap[(at - 1) / 2];
    line->heap[at] = held;
    return true;
}

struct sw_held *sw_fault_line_take(struct sw_fault_line *line, uint64_t now_ns)
{
    if (!line->count || line->heap[0]->due_ns > now_ns)
        return NULL;
    struct sw_held *first = line->heap[0];
    struct sw_held *last = line->heap[--line->count];
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < line->count; at = child) {
        if (child + 1 < line->count && line_is_before(line->heap[child + 1], line->heap[child]))
            child++;
        if (line_is_before(last, line->heap[child]))
            break;
        line->heap[at] = line->heap[child];
    }
    line->heap[at] = last;
    return first;
}

uint64_t sw_fault_line_due_ns(const struct sw_fault_line *line)
{
    return line->count ? line->heap[0]->due_ns : UINT64_MAX;
}

void sw_fault_line_clear(struct sw_fault_line *line)
{
    for (uint32_t i = 0; i < line->count; i++)
        free(line->heap[i]);
    free(line->heap);
    *line = (struct sw_fault_line){0};
}
