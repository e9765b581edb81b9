/* SPDX-License-Identifier: BSD-2-Clause */
/* A disk that fails one write, when the file $BAD_DISK is there. As the kernel does it, each open
 * file is told once, and the pages are clean afterwards. Preloaded. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define VISIBLE __attribute__((visibility("default")))

static bool is_told_to_watcher = true;

VISIBLE int msync(void *at, size_t bytes, int flags)
{
    const char *path = getenv("BAD_DISK");
    (void)at;
    (void)bytes;
    (void)flags;
    if (!path || unlink(path))
        return 0;
    is_told_to_watcher = false;
    errno = EIO;
    return -1;
}

VISIBLE int sync_file_range(int fd, off64_t offset, off64_t bytes, unsigned flags)
{
    (void)fd;
    (void)offset;
    (void)bytes;
    (void)flags;
    if (is_told_to_watcher)
        return 0;
    is_told_to_watcher = true;
    errno = EIO;
    return -1;
}
