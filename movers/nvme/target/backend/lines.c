/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/lines.h"

#include <assert.h>
#include <stdlib.h>

#include "common/base/minmax.h"
#include "nvme/target/backend/backend.h"

struct nvt_line {
    struct list_node node;
    dev_t disk;
    struct nvt_slices waiting;
    uint32_t taken;
};

static struct nvt_line *lines_line_of(struct list_node *node)
{
    return LIST_MEMBER(node, struct nvt_line, node);
}

void nvt_lines_open(struct nvt_lines *lines, uint32_t places, uint32_t of_one)
{
    *lines = (struct nvt_lines){.places = places, .of_one = of_one};
    list_init(&lines->all);
}

void nvt_lines_close(struct nvt_lines *lines)
{
    struct list_node *node;
    while ((node = list_first(&lines->all))) {
        list_remove(node);
        free(lines_line_of(node));
    }
}

/* A line that nobody is in becomes that of another disk: there are as many as were in use at once.
 * NULL: no memory. */
static struct nvt_line *find_line(struct nvt_lines *lines, dev_t disk)
{
    struct nvt_line *idle = NULL;
    for (struct list_node *node = list_first(&lines->all); node;
         node = list_after(&lines->all, node)) {
        struct nvt_line *line = lines_line_of(node);
        if (line->disk == disk)
            return line;
        if (!line->taken && !nvt_slices_any(&line->waiting) && line != lines->turn)
            idle = line;
    }
    if (!idle) {
        idle = calloc(1, sizeof(*idle));
        if (!idle)
            return NULL;
        nvt_slices_init(&idle->waiting);
        list_append(&lines->all, &idle->node);
    }
    idle->disk = disk;
    return idle;
}

static bool lines_has_room(const struct nvt_lines *lines, const struct nvt_line *line)
{
    const uint32_t left = lines->places - (lines->taken - line->taken);
    return line->taken < mover_min_u32(lines->of_one, (left + 1) / 2);
}

/* False: none of them has begun. A line that had its turn goes behind all others, so that each disk
 * has one where there are more disks than places. */
static bool begin_line(struct nvt_lines *lines, struct nvt_line *line)
{
    bool any = false;
    lines->turn = line;
    while (lines_has_room(lines, line) && nvt_slices_run(&line->waiting, 0))
        any = true;
    if (any) {
        list_remove(&line->node);
        list_append(&lines->all, &line->node);
    }
    return any;
}

/* Operations that end as soon as they begin call it again. */
static void begin_lines(struct nvt_lines *lines)
{
    if (lines->turn)
        return;
    for (bool any = true; any;) {
        any = false;
        for (struct list_node *node = list_first(&lines->all), *next; node; node = next) {
            next = list_after(&lines->all, node);
            any |= begin_line(lines, lines_line_of(node));
        }
    }
    lines->turn = NULL;
}

bool nvt_lines_add(struct nvt_lines *lines, dev_t disk, struct nvt_io *io,
                   bool (*begin)(struct nvt_io *io), bool is_held)
{
    struct nvt_line *line = find_line(lines, disk);
    if (!line)
        return false;
    nvt_slices_add(&line->waiting, io, begin);
    io->slice.is_held = is_held;
    io->slice.lines = lines;
    begin_lines(lines);
    return true;
}

struct nvt_line *nvt_lines_take(struct nvt_lines *lines)
{
    lines->taken++;
    lines->turn->taken++;
    return lines->turn;
}

void nvt_lines_give(struct nvt_lines *lines, struct nvt_line *line)
{
    lines->taken--;
    line->taken--;
    begin_lines(lines);
}

void nvt_lines_end_unwanted(struct nvt_lines *lines)
{
    if (lines->turn)
        return;
    for (struct list_node *node = list_first(&lines->all); node;
         node = list_after(&lines->all, node)) {
        lines->turn = lines_line_of(node); /* none begins meanwhile, so the list stays in order */
        nvt_slices_end_unwanted(&lines->turn->waiting);
    }
    lines->turn = NULL;
    begin_lines(lines);
}

bool nvt_lines_has(const struct nvt_io *io)
{
    return io->slice.waits_in;
}

void nvt_lines_end_io(struct nvt_io *io)
{
    struct nvt_lines *lines = io->slice.lines;
    if (!lines)
        return nvt_slices_end_io(io);
    assert(!lines->turn); /* it might be the next one to begin */
    lines->turn = LIST_MEMBER(io->slice.waits_in, struct nvt_line, waiting);
    nvt_slices_end_io(io);
    lines->turn = NULL;
    begin_lines(lines);
}
