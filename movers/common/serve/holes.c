/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/holes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/minmax.h"

enum { SECTOR_BYTES = 512 /* of st_blocks */ };

/* Blocks that the file has, and that were never written, count too. */
static uint64_t count_holes(int fd, uint64_t size)
{
    uint64_t holes = 0;
    for (off_t at = 0; (uint64_t)at < size;) {
        const off_t hole = lseek(fd, at, SEEK_HOLE);
        if (hole < 0 || (uint64_t)hole >= size)
            break;
        const off_t data = lseek(fd, hole, SEEK_DATA);
        at = data < 0 ? (off_t)size : data;
        holes += (uint64_t)(at - hole);
    }
    return holes;
}

/* Blocks behind its end are the file's, too, and fill no hole: what it has is no proof that it
 * lacks nothing, but what it has not it lacks, unless its data is compressed. */
bool mover_holes_lack_room(int fd, uint64_t least_bytes)
{
    struct statvfs fs;
    return !fstatvfs(fd, &fs) && fs.f_blocks && (uint64_t)fs.f_bavail * fs.f_frsize < least_bytes;
}

int mover_holes_fill(int fd, uint64_t *holes_bytes)
{
    struct stat stat;
    int rc;
    if (fstat(fd, &stat))
        return -errno;
    const uint64_t size = (uint64_t)stat.st_size, has = (uint64_t)stat.st_blocks * SECTOR_BYTES;
    const uint64_t holes = count_holes(fd, size), missing = has < size ? size - has : 0;
    *holes_bytes = holes ? holes : missing; /* of a file system that knows no holes */
    if (!*holes_bytes)
        return 0;
    if (mover_holes_lack_room(fd, mover_min_u64(holes, missing)))
        return -ENOSPC;
    do
        rc = fallocate(fd, 0, 0, stat.st_size) ? -errno : 0;
    while (rc == -EINTR);
    return rc == -ENOSYS ? -EOPNOTSUPP : rc;
}

int mover_holes_fill_all(int fd, const char *path, bool is_shared, char *error, size_t error_bytes)
{
    uint64_t holes_bytes = 0;
    struct stat stat;
    int code = mover_holes_fill(fd, &holes_bytes);
    if (code == -EOPNOTSUPP)
        code = is_shared ? 0 : fstat(fd, &stat) ? -errno : -posix_fallocate(fd, 0, stat.st_size);
    if (code)
        snprintf(error, error_bytes,
                 "%.150s: %" PRIu64 " KiB of it are holes, which its file system cannot fill: %s; "
                 "make room there, or serve a smaller file",
                 path, holes_bytes >> 10, strerror(-code));
    return code;
}
