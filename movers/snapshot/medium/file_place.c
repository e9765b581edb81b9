/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/medium/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/serve/disk.h"
#include "common/serve/holes.h"
#include "common/serve/new_file.h"
#include "common/time/clock.h"

enum { SUPERBLOCKS = 2, LOOK_MS = 20, MIB = 1 << 20 };

/* Beside those of common/serve/served.c. */
static const int64_t ask_offset = (1ll << 61) + 16;

static int fail_file(char *error, size_t error_bytes, int code, const char *path, const char *why)
{
    snprintf(error, error_bytes, "%.150s: %s", path, why);
    return code;
}

/* ---- who writes ---- */

static bool lock_mark(int fd, short type)
{
    struct flock mark = {.l_type = type, .l_start = ask_offset, .l_len = 1};
    return !fcntl(fd, F_OFD_SETLK, &mark);
}

bool snap_file_is_asked_for(int fd)
{
    struct flock mark = {.l_type = F_WRLCK, .l_start = ask_offset, .l_len = 1};
    return !fcntl(fd, F_OFD_GETLK, &mark) && mark.l_type != F_UNLCK;
}

static int open_locked(const char *path, uint64_t bytes, char *error, size_t error_bytes)
{
    static const struct mover_serving alone = {.is_shared = false};
    return mover_new_file_open(path, O_RDWR, bytes, &alone, error, error_bytes);
}

/* The one that has it lets go once what it has under way is done. One that is stopped does not, and
 * might go on to write later: it is never overtaken. */
static int take_lock_over(const char *path, const struct snap_medium_options *options, char *error,
                          size_t error_bytes)
{
    char why[192];
    const int asking = open(path, O_RDWR | O_CLOEXEC);
    if (asking < 0)
        return fail_file(error, error_bytes, -errno, path, strerror(errno));
    int fd = -EBUSY;
    if (lock_mark(asking, F_WRLCK)) {
        const uint64_t deadline_ns = mover_now_ns() + options->connect_timeout_ms * NS_PER_MS;
        do {
            poll(NULL, 0, LOOK_MS);
            fd = open_locked(path, options->bytes, why, sizeof(why));
        } while (fd == -EBUSY && mover_now_ns() < deadline_ns);
        if (fd == -EBUSY)
            snprintf(error, error_bytes,
                     "%s; it was asked to let go, and has not in %" PRIu32
                     " ms: continue it if it is stopped, or end it",
                     why, options->connect_timeout_ms);
        else if (fd < 0)
            snprintf(error, error_bytes, "%s", why);
    } else {
        fail_file(error, error_bytes, fd, path, "another program is just taking it over");
    }
    close(asking);
    return fd;
}

/* ---- what is there ---- */

static int tell_no_room(const char *path, uint64_t needed, char *error, size_t error_bytes)
{
    struct statvfs fs = {.f_bavail = 0};
    char folder[PATH_MAX];
    snprintf(folder, sizeof(folder), "%s", path);
    statvfs(dirname(folder), &fs);
    snprintf(error, error_bytes,
             "%.150s: it needs %" PRIu64 " MiB, and its file system has %" PRIu64
             " MiB left: free some, or take a smaller volume",
             path, (needed + MIB - 1) / MIB, (uint64_t)fs.f_bavail * fs.f_frsize / MIB);
    return -ENOSPC;
}

/* An empty file is as good as none: a program that was killed while it made a volume leaves one. */
static bool is_empty_file(const struct stat *st)
{
    return S_ISREG(st->st_mode) && !st->st_size;
}

static int tell_no_volume(const char *path, char *error, size_t error_bytes)
{
    return fail_file(error, error_bytes, -ENOENT, path, "there is no such volume");
}

static int open_to_write(const char *path, const struct snap_medium_options *options, char *error,
                         size_t error_bytes)
{
    struct stat st;
    const bool is_there = !stat(path, &st);
    if (!options->bytes && (is_there ? is_empty_file(&st) : errno == ENOENT))
        return tell_no_volume(path, error, error_bytes);
    if (is_there && !S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
        return fail_file(error, error_bytes, S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL, path,
                         "it is neither a file nor a block device");
    int fd = open_locked(path, options->bytes, error, error_bytes);
    if (fd == -ENOSPC)
        return tell_no_room(path, options->bytes, error, error_bytes);
    if (fd == -EBUSY && options->take_over)
        fd = take_lock_over(path, options, error, error_bytes);
    return fd;
}

static int open_to_read(const char *path, char *error, size_t error_bytes)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return tell_no_volume(path, error, error_bytes);
    if (fd < 0)
        return fail_file(error, error_bytes, -errno, path, strerror(errno));
    const bool is_known = !fstat(fd, &st);
    if (is_known && !is_empty_file(&st) && (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode)))
        return fd;
    close(fd);
    if (is_known && is_empty_file(&st))
        return tell_no_volume(path, error, error_bytes);
    return fail_file(error, error_bytes, -EINVAL, path, "it is neither a file nor a block device");
}

static int file_measure_place(struct snap_file_place *place)
{
    struct stat st;
    if (fstat(place->fd, &st))
        return -errno;
    place->bytes = (uint64_t)st.st_size;
    if (S_ISBLK(st.st_mode) && ioctl(place->fd, BLKGETSIZE64, &place->bytes))
        return -errno;
    place->bytes -= place->bytes % SNAP_BLOCK_BYTES;
    place->is_volatile = mover_disk_is_memory(place->fd);
    return 0;
}

/* Blocks for all that was never written: a full disk is told now, and not amid a snapshot. */
static int fill_place(struct snap_file_place *place, const char *path, char *error,
                      size_t error_bytes)
{
    uint64_t holes = 0;
    struct stat st;
    if (fstat(place->fd, &st) || !S_ISREG(st.st_mode))
        return 0;
    const int code = mover_holes_fill(place->fd, &holes);
    if (code == -ENOSPC)
        return tell_no_room(path, holes, error, error_bytes);
    if (code && code != -EOPNOTSUPP)
        return fail_file(error, error_bytes, code, path, strerror(-code));
    if (fsync(place->fd))
        return fail_file(error, error_bytes, -errno, path, strerror(errno));
    const int folder_code = mover_disk_sync_folder(path);
    return folder_code ? fail_file(error, error_bytes, folder_code, path,
                                   "its folder could not be written to the disk")
                       : 0;
}

static int find_zeroes(struct snap_file_place *place)
{
    static const uint8_t zeroes[SUPERBLOCKS * SNAP_BLOCK_BYTES];
    uint8_t *start = aligned_alloc(SNAP_BLOCK_BYTES, sizeof(zeroes));
    if (!start)
        return -ENOMEM;
    const ssize_t bytes = pread(place->fd, start, sizeof(zeroes), 0);
    const int code = bytes < 0 ? -errno : bytes < (ssize_t)sizeof(zeroes) ? -EIO : 0;
    place->is_new = !code && !memcmp(start, zeroes, sizeof(zeroes));
    free(start);
    return code;
}

/* It may be what is left of a volume. */
static int tell_too_short(const char *path, uint64_t bytes, char *error, size_t error_bytes)
{
    snprintf(error, error_bytes,
             "%.150s: %" PRIu64
             " bytes are too short for a volume. It is not touched: put the rest "
             "back if it was one, or take another name",
             path, bytes);
    return -EINVAL;
}

int snap_file_place_open(const char *path, const struct snap_medium_options *options, char *error,
                         size_t error_bytes, struct snap_file_place *place)
{
    int code = 0;
    *place = (struct snap_file_place){.fd = -1};
    if (!*path || strlen(path) >= PATH_MAX)
        return fail_file(error, error_bytes, -EINVAL, "file", "it needs a path: file:PATH");
    place->fd = options->is_writable ? open_to_write(path, options, error, error_bytes)
                                     : open_to_read(path, error, error_bytes);
    if (place->fd < 0)
        return place->fd;
    if (options->is_writable)
        code = fill_place(place, path, error, error_bytes);
    if (!code) {
        place->is_direct = !fcntl(place->fd, F_SETFL, O_DIRECT);
        code = file_measure_place(place);
        if (!code && place->bytes < SUPERBLOCKS * SNAP_BLOCK_BYTES)
            code = tell_too_short(path, place->bytes, error, error_bytes);
        else if (code || (code = find_zeroes(place)))
            fail_file(error, error_bytes, code, path, strerror(-code));
    }
    if (code)
        snap_file_place_close(place, false);
    return code;
}

bool snap_file_place_is_deleted(const struct snap_file_place *place)
{
    struct stat st;
    return place->fd >= 0 && !fstat(place->fd, &st) && S_ISREG(st.st_mode) && !st.st_nlink;
}

void snap_file_place_close(struct snap_file_place *place, bool is_forked)
{
    if (place->fd < 0)
        return;
    if (!is_forked)
        flock(place->fd, LOCK_UN);
    close(place->fd);
    place->fd = -1;
}
