/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hook of write(), by which commands reach the connection manager. What a program has of a
 * channel is the end of a pipe that cannot be written to, so the kernel is asked first: any other
 * write costs a test of its result.
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

SW_HOOK ssize_t write(int fd, const void *bytes, size_t len)
{
    int saved_errno = errno;
    ssize_t done = SW_REAL(write)(fd, bytes, len);
    if (__builtin_expect(done >= 0 || errno != EBADF, 1) ||
        !atomic_load_explicit(&sw_ucm_channel_count, memory_order_relaxed))
        return done;
    errno = saved_errno;
    return write_command(fd, bytes, len);
}
