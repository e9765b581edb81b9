/* SPDX-License-Identifier: BSD-2-Clause */
#include "pmem/server/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* No file is as long as that. */
#define BEHIND_ALL_BYTES (1ll << 62)

int pms_disk_open(int file_fd, struct pms_disk *disk)
{
    char path[32];
    *disk = (struct pms_disk){.fd = -1};
    if (fsync(file_fd))
        return -errno;
    posix_fadvise(file_fd, 0, 0, POSIX_FADV_DONTNEED);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file_fd);
    disk->fd = open(path, O_RDONLY | O_CLOEXEC);
    disk->is_watched = disk->fd >= 0;
    return 0;
}

void pms_disk_close(struct pms_disk *disk)
{
    if (disk->is_watched)
        close(disk->fd);
    disk->is_watched = false;
}

/* The system call itself was refused; that says nothing of the disk. */
static bool is_call_refused(int error)
{
    return error == EINVAL || error == ENOSYS || error == EPERM || error == ESPIPE ||
           error == EBADF || error == EINTR;
}

/* Where no page is, there is none to wait for: the call tells of errors alone. */
bool pms_disk_look(struct pms_disk *disk)
{
    if (!disk->is_watched || disk->error ||
        !sync_file_range(disk->fd, BEHIND_ALL_BYTES, 1, SYNC_FILE_RANGE_WAIT_BEFORE) ||
        is_call_refused(errno))
        return false;
    disk->error = errno;
    return true;
}
