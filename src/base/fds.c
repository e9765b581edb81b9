/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/fds.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/minmax.h"

/* From three quarters of what the program may have, but not so high that the kernel's table of
 * descriptors grows for it. */
#define LOWEST_MAX 3072
#define SHARE_LEAST 4u

static atomic_bool own[SW_FDS_MAX];
static struct identity {
    _Atomic dev_t dev;
    _Atomic ino_t ino;
} identities[SW_FDS_MAX]; /* a number may pass from thread to thread: its holder reads */

static int close_number(int fd)
{
#ifdef __SANITIZE_THREAD__ /* follows descriptors by libc's calls, and would see races in reuse */
#undef close
    int close(int number);
    return close(fd);
#else
    return (int)syscall(SYS_close, fd);
#endif
}

static bool identify_fd(int fd, struct identity *out)
{
    struct stat st;
    if (fstat(fd, &st))
        return false;
    atomic_store_explicit(&out->dev, st.st_dev, memory_order_relaxed);
    atomic_store_explicit(&out->ino, st.st_ino, memory_order_relaxed);
    return true;
}

static bool fds_is_same(const struct identity *a, const struct identity *b)
{
    return atomic_load_explicit(&a->dev, memory_order_relaxed) ==
               atomic_load_explicit(&b->dev, memory_order_relaxed) &&
           atomic_load_explicit(&a->ino, memory_order_relaxed) ==
               atomic_load_explicit(&b->ino, memory_order_relaxed);
}

/* Another number for it, or the same. */
static int move_high(int fd)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return fd;
    rlim_t lowest = limit.rlim_cur / 4 * 3;
    lowest = sw_min_u64(lowest, LOWEST_MAX);
    if ((rlim_t)fd >= lowest)
        return fd;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, (int)lowest);
    if (high < 0)
        return fd;
    close_number(fd);
    return high;
}

int sw_fd_own(int fd)
{
    if (fd < 0)
        return fd;
    int saved_errno = errno;
    fd = move_high(fd);
    if (fd < SW_FDS_MAX && identify_fd(fd, &identities[fd]))
        atomic_store(&own[fd], true);
    errno = saved_errno;
    return fd;
}

bool sw_fd_is_own(int fd)
{
    return fd >= 0 && fd < SW_FDS_MAX && atomic_load_explicit(&own[fd], memory_order_relaxed);
}

bool sw_fd_is_intact(int fd)
{
    struct identity now;
    if (fd < 0 || fd >= SW_FDS_MAX)
        return fd >= 0;
    return sw_fd_is_own(fd) && identify_fd(fd, &now) && fds_is_same(&now, &identities[fd]);
}

bool sw_fd_is_anonymous(int fd)
{
    struct stat st;
    return !fstat(fd, &st) && !(st.st_mode & S_IFMT);
}

uint32_t sw_fds_share(uint32_t parts, uint32_t most)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur / parts >= most)
        return most;
    return sw_max_u32((uint32_t)(limit.rlim_cur / parts), SHARE_LEAST);
}

void sw_fd_lose(int fd)
{
    if (fd >= 0 && fd < SW_FDS_MAX)
        atomic_store(&own[fd], false);
}

int sw_fd_close(int fd)
{
    if (sw_fd_is_own(fd)) {
        const bool intact = sw_fd_is_intact(fd);
        sw_fd_lose(fd);
        if (!intact) { /* a file of the program's has the number */
            errno = EBADF;
            return -1;
        }
    }
    return close_number(fd);
}
