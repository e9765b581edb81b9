/* SPDX-License-Identifier: BSD-2-Clause */
/* A disk that fails a flush, when the file $BAD_DISK is there. As the kernel does it, that is told
 * once: later flushes find nothing to write. $BAD_DISK.synced has what fsync() was called for, a
 * path a line. Preloaded. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
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

__attribute__((visibility("default"))) int fsync(int fd)
{
    char name[1024], path[PATH_MAX];
    const char *bad = getenv("BAD_DISK");
    const int code = (int)syscall(SYS_fsync, fd);
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(name, path, sizeof(path));
    snprintf(name, sizeof(name), "%s.synced", bad ? bad : "");
    const int log_fd = bad && length > 0 ? open(name, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (log_fd >= 0) {
        dprintf(log_fd, "%.*s\n", (int)length, path);
        close(log_fd);
    }
    return code;
}
