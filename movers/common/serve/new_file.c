/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/serve/holes.h"

enum { SECTOR_BYTES = 512 /* of st_blocks */ };

static int refuse_file(const char *path, const char *why, int code, char *error, size_t error_bytes)
{
    snprintf(error, error_bytes, "%.150s: %s", path, why);
    return code;
}

/* An empty file is one that another server was about to fill, and is as good as none. Only the
 * server that made it fills a shared one. */
static bool is_to_fill(int fd, int flags, const struct mover_serving *how, bool is_mine)
{
    struct stat st;
    return !fstat(fd, &st) && S_ISREG(st.st_mode) && !st.st_size && st.st_nlink &&
           (is_mine || (!how->is_shared && (flags & O_ACCMODE) == O_RDWR));
}

/* Under the lock: nobody else serves it meanwhile. Blocks of the disk now: a full disk found later
 * would be a SIGBUS. It gets its size at once: a server that is killed meanwhile leaves an empty
 * file or, where the file system leaves blocks to the writers, one with holes, and the next server
 * fills both. */
static int new_file_fill(int fd, uint64_t bytes)
{
    struct stat st;
    int code;
    if (fstat(fd, &st))
        return -errno;
    /* A call that fails may take all that there is first. A server that was killed amid this has
     * left blocks. */
    const uint64_t has = (uint64_t)st.st_blocks * SECTOR_BYTES;
    if (has < bytes && mover_holes_lack_room(fd, bytes - has))
        return -ENOSPC;
    do
        code = fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) ? errno : 0;
    while (code == EINTR);
    if (code && code != EOPNOTSUPP && code != ENOSYS)
        return -code;
    if (ftruncate(fd, (off_t)bytes))
        return -errno;
    code = posix_fallocate(fd, 0, (off_t)bytes);
    return code || !fsync(fd) ? -code : -errno;
}

static int new_file_give_up(int fd, const char *path, bool is_mine, int code)
{
    if (!is_mine || unlink(path))
        (void)!ftruncate(fd, 0);
    close(fd);
    return code;
}

static const char *why_not_there(const char *path)
{
    const bool is_device = !strncmp(path, "/dev/", 5) && strncmp(path, "/dev/shm/", 9) != 0;
    return is_device ? "there is no such device" : "there is no such file; --size creates it";
}

int mover_new_file_open(const char *path, int flags, uint64_t create_bytes,
                        const struct mover_serving *how, char *error, size_t error_bytes)
{
    const bool is_there = !access(path, F_OK) || errno != ENOENT;
    if (!is_there && !create_bytes)
        return refuse_file(path, why_not_there(path), -ENOENT, error, error_bytes);
    int fd = is_there ? -1 : open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const bool is_mine = fd >= 0;
    if (!is_there && !is_mine && errno != EEXIST)
        return refuse_file(path, strerror(errno), -errno, error, error_bytes);
    int code = 0;
    if (is_mine)
        code = mover_served_lock(fd, path, how, error, error_bytes);
    else
        fd = code = mover_served_open(path, flags, how, error, error_bytes);
    if (code < 0) {
        if (is_mine)
            close(fd);
        return code;
    }
    code =
        create_bytes && is_to_fill(fd, flags, how, is_mine) ? new_file_fill(fd, create_bytes) : 0;
    if (!code)
        return fd;
    new_file_give_up(fd, path, is_mine, code);
    return refuse_file(path,
                       code == -ENOSPC ? "its file system has no room for that: free some, or take "
                                         "a smaller size"
                                       : strerror(-code),
                       code, error, error_bytes);
}
