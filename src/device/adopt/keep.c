/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/adopt/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fds.h"

static const char *const paths[SW_KEEP_COUNT] = {
    [SW_KEEP_MAPS] = "/proc/self/maps",
    [SW_KEEP_FDS] = "/proc/self/fd",
    [SW_KEEP_TASKS] = "/proc/self/task",
    [SW_KEEP_PAGEMAP] = "/proc/self/pagemap",
};

static struct kept {
    int fd_plus_1; /* 0: not open */
    dev_t dev;
    ino_t ino;
} kept[SW_KEEP_COUNT];

/* Whether it still is what was opened: programs close numbers that they do not know. */
static bool keep_is_ours(const struct kept *one)
{
    struct stat st;
    return one->fd_plus_1 && !fstat(one->fd_plus_1 - 1, &st) && st.st_dev == one->dev &&
           st.st_ino == one->ino;
}

static struct sw_uffd kept_uffd;

static int open_new(enum sw_keep what)
{
    if (what == SW_KEEP_UFFD) {
        int rc = sw_uffd_open(&kept_uffd);
        return rc ? rc : kept_uffd.fd;
    }
    int fd = open(paths[what], O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int sw_keep_all(void)
{
    for (int i = 0; i < SW_KEEP_COUNT; i++) {
        struct stat st;
        if (keep_is_ours(&kept[i]))
            continue;
        int fd = sw_fd_own(open_new((enum sw_keep)i));
        if (fd < 0)
            return fd;
        if (fstat(fd, &st)) {
            close(fd);
            return -EBADF;
        }
        kept[i] = (struct kept){fd + 1, st.st_dev, st.st_ino};
    }
    return 0;
}

int sw_keep_uffd(struct sw_uffd *uffd)
{
    int rc = sw_uffd_open(uffd);
    if (!rc || !keep_is_ours(&kept[SW_KEEP_UFFD]))
        return rc;
    *uffd = kept_uffd;
    uffd->fd = kept[SW_KEEP_UFFD].fd_plus_1 - 1;
    return 0;
}

int sw_keep_open(enum sw_keep what)
{
    int fd = open_new(what);
    if (fd >= 0)
        return fd;
    const int own = kept[what].fd_plus_1 - 1;
    return keep_is_ours(&kept[what]) && !lseek(own, 0, SEEK_SET) ? own : fd;
}

void sw_keep_close(int fd)
{
    for (int i = 0; i < SW_KEEP_COUNT; i++) {
        if (kept[i].fd_plus_1 == fd + 1)
            return;
    }
    close(fd);
}

int sw_keep_count(void)
{
    int count = 0;
    for (int i = 0; i < SW_KEEP_COUNT; i++)
        count += keep_is_ours(&kept[i]);
    return count;
}

void sw_keep_forget(void)
{
    for (int i = 0; i < SW_KEEP_COUNT; i++) {
        if (keep_is_ours(&kept[i]))
            close(kept[i].fd_plus_1 - 1);
        kept[i] = (struct kept){0};
    }
}
