/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/base/minmax.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef RAMFS_MAGIC
#define RAMFS_MAGIC 0x858458f6
#endif

/* No file is as long as that. */
#define BEHIND_ALL_BYTES (1ll << 62)

enum { WINDOW_PAGES = 1 << 12, EXTENTS = 32 };

/* Where no page is, there is none to wait for: the call tells of errors alone. */
static int ask_disk(int fd)
{
    return sync_file_range(fd, BEHIND_ALL_BYTES, 1, SYNC_FILE_RANGE_WAIT_BEFORE) ? errno : 0;
}

static int flush_file(int fd)
{
    return fsync(fd) && !mover_disk_is_refusal(errno) ? -errno : 0;
}

/* A part of a file that is served, and which of its pages the cache has. */
struct window {
    int fd;
    uint64_t offset, bytes;
    size_t page_bytes, pages;
    uint8_t is_cached[WINDOW_PAGES]; /* bit 0; mincore(2) says nothing of the others */
};

/* Makes them dirty, and leaves their bytes alone: without room for one that is an error, and no
 * SIGBUS. Returns how many there were, or a negative errno. */
static int spoil_pages(const struct window *w, char *mapped)
{
    int spoilt = 0;
    for (size_t end, at = 0; at < w->pages; at = end + 1) {
        for (; at < w->pages && !(w->is_cached[at] & 1); at++)
            ;
        for (end = at; end < w->pages && w->is_cached[end] & 1; end++)
            ;
        if (end > at &&
            madvise(mapped + at * w->page_bytes, (end - at) * w->page_bytes, MADV_POPULATE_WRITE))
            return errno == EINVAL ? 0 : -errno;
        spoilt += (int)(end - at);
    }
    return spoilt;
}

static bool has_cached(const struct window *w, uint64_t start, uint64_t end)
{
    for (size_t i = 0; i < w->pages; i++) {
        const uint64_t at = w->offset + i * w->page_bytes;
        if (w->is_cached[i] & 1 && start < at + w->page_bytes && end > at)
            return true;
    }
    return false;
}

/* After a write to new blocks failed, ext4 takes those of a page that stayed in the cache for
 * written: they are written each time, and never read back. False: some are so. */
static bool are_read_back(const struct window *w)
{
    const uint64_t window_end = w->offset + w->bytes;
    union {
        struct fiemap map;
        uint8_t room[sizeof(struct fiemap) + EXTENTS * sizeof(struct fiemap_extent)];
    } found;
    for (uint64_t at = w->offset; at < window_end;) {
        memset(&found, 0, sizeof(found));
        found.map.fm_start = at;
        found.map.fm_length = window_end - at;
        found.map.fm_extent_count = EXTENTS;
        if (ioctl(w->fd, FS_IOC_FIEMAP, &found.map) || !found.map.fm_mapped_extents)
            return true;
        for (uint32_t i = 0; i < found.map.fm_mapped_extents; i++) {
            const struct fiemap_extent *extent = &found.map.fm_extents[i];
            at = extent->fe_logical + extent->fe_length;
            if (extent->fe_flags & FIEMAP_EXTENT_UNWRITTEN &&
                has_cached(w, extent->fe_logical, mover_min_u64(at, window_end)))
                return false;
        }
    }
    return true;
}

static int write_window_again(struct window *w)
{
    char *mapped =
        mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, w->fd, (off_t)w->offset);
    if (mapped == MAP_FAILED)
        return -errno;
    const int spoilt = mincore(mapped, w->bytes, w->is_cached) ? -errno : spoil_pages(w, mapped);
    munmap(mapped, w->bytes);
    if (spoilt <= 0)
        return spoilt;
    const int rc = flush_file(w->fd);
    return rc || are_read_back(w) ? rc : -EBUSY;
}

/* Pages that another process has mapped stay in the cache. */
static int write_kept_again(int fd)
{
    struct stat st;
    struct window w = {.fd = fd, .page_bytes = (size_t)sysconf(_SC_PAGESIZE)};
    int rc = 0;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
        return 0;
    const uint64_t size = (uint64_t)st.st_size;
    for (; !rc && w.offset < size; w.offset += w.bytes) {
        w.bytes = mover_min_u64(WINDOW_PAGES * (uint64_t)w.page_bytes, size - w.offset);
        w.pages = (w.bytes + w.page_bytes - 1) / w.page_bytes;
        rc = write_window_again(&w);
    }
    return rc;
}

/* What a disk has not taken is not served as if it had: it is forgotten. */
static int forget_untaken(int fd)
{
    const int rc = flush_file(fd);
    if (rc)
        return rc;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return write_kept_again(fd);
}

int mover_disk_sync_folder(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof(folder), "%s", path);
    const int fd = open(dirname(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    const int rc = fsync(fd) && errno != EINVAL && errno != EROFS ? -errno : 0;
    close(fd);
    return rc;
}

const char *mover_disk_why(int rc)
{
    return rc == -EBUSY ? "its disk has failed a write, and a process that has the file mapped "
                          "keeps what was not written: end it (fuser shows it), then start again"
                        : strerror(-rc);
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

bool mover_disk_is_memory(int file_fd)
{
    struct statfs fs;
    struct stat st;
    if (fstat(file_fd, &st) || !S_ISREG(st.st_mode) || fstatfs(file_fd, &fs))
        return false;
    const unsigned long type = (unsigned long)fs.f_type;
    return type == TMPFS_MAGIC || type == RAMFS_MAGIC || type == HUGETLBFS_MAGIC;
}
