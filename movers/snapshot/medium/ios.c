/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/medium/ios.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

void snap_ended_add(struct snap_line *ended, struct snap_io *io, int result)
{
    io->private[0] = (uint64_t)(int64_t)result;
    snap_line_add(ended, io);
}

void snap_ended_add_all(struct snap_line *ended, struct snap_line *line, int result)
{
    struct snap_io *io;
    while ((io = snap_line_take(line)))
        snap_ended_add(ended, io, result);
}

void snap_ended_tell(struct snap_line *ended)
{
    struct snap_line now = *ended; /* done() may begin others, which may end at once */
    struct snap_io *io;
    *ended = (struct snap_line){0};
    while ((io = snap_line_take(&now)))
        io->done(io, (int)(int64_t)io->private[0]);
}

int snap_memories_add(struct snap_memories *memories, void *data, size_t bytes, void *registration)
{
    if (!bytes || (uintptr_t)data % SNAP_BLOCK_BYTES)
        return -EINVAL;
    if (memories->count == SNAP_MEMORIES_MAX)
        return -ENOSPC;
    memories->of[memories->count++] = (struct snap_memory){data, bytes, registration};
    return 0;
}

struct snap_memory *snap_memories_find(struct snap_memories *memories, const void *data,
                                       size_t bytes)
{
    for (uint32_t i = 0; i < memories->count; i++) {
        struct snap_memory *one = &memories->of[i];
        const size_t offset = (uintptr_t)data - (uintptr_t)one->data;
        if (offset < one->bytes && bytes <= one->bytes - offset)
            return one;
    }
    return NULL;
}

static bool is_misshapen(const struct snap_io *io)
{
    return !io->bytes || io->bytes > SNAP_IO_BYTES_MAX || io->bytes % SNAP_BLOCK_BYTES ||
           io->offset % SNAP_BLOCK_BYTES || (uintptr_t)io->data % SNAP_BLOCK_BYTES;
}

int snap_io_refusal(const struct snap_medium *medium, struct snap_memories *memories,
                    const struct snap_io *io)
{
    if (medium->error)
        return medium->error;
    switch (io->kind) {
    case SNAP_IO_FLUSH:
        return medium->is_writable ? 0 : -EROFS;
    case SNAP_IO_CHECK:
        if (!medium->checks)
            return -EINVAL;
        return io->offset % SNAP_BLOCK_BYTES ? -EINVAL : io->offset >= medium->bytes ? -ERANGE : 0;
    case SNAP_IO_WRITE:
        if (!medium->is_writable)
            return -EROFS;
        break;
    case SNAP_IO_READ:
        break;
    }
    if (is_misshapen(io))
        return -EINVAL;
    if (io->offset >= medium->bytes || io->bytes > medium->bytes - io->offset)
        return -ERANGE;
    return snap_memories_find(memories, io->data, io->bytes) ? 0 : -EFAULT;
}

void snap_medium_fail(struct snap_medium *medium, int code, const char *format, ...)
{
    va_list values;
    if (medium->error)
        return;
    medium->error = code;
    va_start(values, format);
    vsnprintf(medium->why, sizeof(medium->why), format, values);
    va_end(values);
}
