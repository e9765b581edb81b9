/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* No file is as long as that. */
#define BEHIND_ALL_BYTES (1ll << 62)

/* Where no page is, there is none to wait for: the call tells of errors alone. */
static int ask_disk(int fd)
{
    return sync_file_range(fd, BEHIND_ALL_BYTES, 1, SYNC_FILE_RANGE_WAIT_BEFORE) ? errno : 0;
}

/* What a disk has not taken is not served as if it had: it is forgotten. */
static int forget_untaken(int fd)
{
    if (fsync(fd) && !mover_disk_is_refusal(errno))
        return -errno;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return 0;
}

int mover_disk_open(int file_fd, bool serves_cache, struct mover_disk *disk)
{
    char path[32];
    *disk = (struct mover_disk){0};
    const int rc = serves_cache ? forget_untaken(file_fd) : 0;
    if (rc)
        return rc;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file_fd);
    *disk = (struct mover_disk){.fd = open(path, O_RDONLY | O_CLOEXEC)};
    disk->is_watched = disk->fd >= 0;
    ask_disk(file_fd);
    if (disk->is_watched)
        ask_disk(disk->fd);
    return 0;
}

void mover_disk_close(struct mover_disk *disk)
{
    if (disk->is_watched)
        close(disk->fd);
    disk->is_watched = false;
}

/* io_uring cancels a call for which it cannot create a worker (RLIMIT_NPROC, pids.max). */
bool mover_disk_is_refusal(int error)
{
    return error == EINVAL || error == ENOSYS || error == EPERM || error == ESPIPE ||
           error == EBADF || error == EINTR || error == ENOMEM || error == ECANCELED ||
           error == EAGAIN;
}

bool mover_disk_look(struct mover_disk *disk)
{
    const int error = disk->is_watched && !disk->error ? ask_disk(disk->fd) : 0;
    if (!error || mover_disk_is_refusal(error))
        return false;
    disk->error = error;
    return true;
}
