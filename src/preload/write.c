/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hook of write(), by which commands reach the connection manager. A program has the end of a
 * pipe that cannot be written to as its channel, so the kernel is asked first: any other write
 * costs a test of its result, and one of its descriptor's number.
 */
#include <errno.h>

#include "preload/real.h"
#include "rdmacm/rdmacm.h"

static ssize_t write_command(int fd, const void *bytes, size_t len)
{
    ssize_t done = sw_ucm_write(fd, bytes, len);
    if (done >= 0)
        return done;
    errno = (int)-done;
    return -1;
}

/* Descriptors that were channels when they were written to last: asked about first. */
#define HINTS 1024u
static atomic_uchar hints[HINTS];

static bool is_hinted(int fd)
{
    return (unsigned int)fd < HINTS && atomic_load_explicit(&hints[fd], memory_order_relaxed);
}

static void set_hint(int fd, bool is_channel)
{
    if ((unsigned int)fd < HINTS)
        atomic_store_explicit(&hints[fd], is_channel, memory_order_relaxed);
}

SW_HOOK ssize_t write(int fd, const void *bytes, size_t len)
{
    int saved_errno = errno;
    ssize_t done = -1;
    if (__builtin_expect(is_hinted(fd), 0)) {
        done = write_command(fd, bytes, len);
        if (done >= 0 || errno != EBADF)
            return done;
        set_hint(fd, false);
        errno = saved_errno;
    }
    done = SW_REAL(write)(fd, bytes, len);
    if (__builtin_expect(done >= 0 || errno != EBADF, 1) ||
        !atomic_load_explicit(&sw_ucm_channel_count, memory_order_relaxed))
        return done;
    errno = saved_errno;
    done = write_command(fd, bytes, len);
    set_hint(fd, done >= 0);
    return done;
}
