/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What all media have: a queue of ios, those that have ended and are told by the next poll, and the
 * memory that ios may use.
 */
#ifndef SW_SNAPSHOT_IOS_H
#define SW_SNAPSHOT_IOS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "snapshot/core/medium.h"

/* First in, first out. */
struct snap_line {
    struct snap_io *first, *last;
};

static inline void snap_line_add(struct snap_line *line, struct snap_io *io)
{
    io->next = NULL;
    if (line->first)
        line->last->next = io;
    else
        line->first = io;
    line->last = io;
}

/* NULL: there is none. */
static inline struct snap_io *snap_line_take(struct snap_line *line)
{
    struct snap_io *io = line->first;
    if (io)
        line->first = io->next;
    return io;
}

/* Ended, and not told yet: done() is called by poll and close alone. */
void snap_ended_add(struct snap_line *ended, struct snap_io *io, int result);
/* Ends all that wait in `line`. */
void snap_ended_add_all(struct snap_line *ended, struct snap_line *line, int result);
/* Calls done() of those that are there now. */
void snap_ended_tell(struct snap_line *ended);

enum { SNAP_MEMORIES_MAX = 16 };

struct snap_memory {
    uint8_t *data;
    size_t bytes;
    void *registration; /* the medium's */
};

struct snap_memories {
    struct snap_memory of[SNAP_MEMORIES_MAX];
    uint32_t count;
};

/* 0, -EINVAL where it is not aligned, or -ENOSPC: there are too many. */
int snap_memories_add(struct snap_memories *memories, void *data, size_t bytes, void *registration);
/* The memory that has all of it; NULL: none. */
struct snap_memory *snap_memories_find(struct snap_memories *memories, const void *data,
                                       size_t bytes);

/*
 * Why an io is not begun; 0: it may be. -EINVAL: its place, length or memory is not aligned, it is
 * longer than SNAP_IO_BYTES_MAX, or of a kind that the medium has not; -ERANGE: it is not all in
 * the volume; -EFAULT: its memory was not told of; -EROFS: the medium is read only; else what has
 * ended the medium.
 */
int snap_io_refusal(const struct snap_medium *medium, struct snap_memories *memories,
                    const struct snap_io *io);

/* Ends a medium: `code` is a negative errno. The first call counts. */
void snap_medium_fail(struct snap_medium *medium, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
