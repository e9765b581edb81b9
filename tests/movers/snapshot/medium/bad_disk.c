/* SPDX-License-Identifier: BSD-2-Clause */
/* A disk that fails a flush, when the file $BAD_DISK is there. As the kernel does it, that is told
 * once: later flushes find nothing to write. Preloaded. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((visibility("default"))) int fdatasync(int fd)
{
    const char *path = getenv("BAD_DISK");
    (void)fd;
    if (!path || unlink(path))
        return 0;
    errno = EIO;
    return -1;
}
