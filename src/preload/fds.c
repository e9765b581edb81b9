/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of the calls that close descriptors by number: ours are not there for the program
 * (base/fds.h). */
#include "base/fds.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/syscall.h>

#include "link/attend.h"
#include "preload/real.h"

/* Whether the number is ours. If a raw system call has taken it from us, it is the program's. */
static bool is_hidden(int fd)
{
    if (__builtin_expect(!sw_fd_is_own(fd), 1))
        return false;
    const int saved_errno = errno;
    const bool intact = sw_fd_is_intact(fd);
    if (!intact)
        sw_fd_lose(fd);
    errno = saved_errno;
    return intact;
}

static int not_open(void)
{
    errno = EBADF;
    return -1;
}

SW_HOOK int close(int fd)
{
    if (is_hidden(fd))
        return not_open();
    if (__builtin_expect(sw_attend_is_marked(fd), 0))
        sw_attend_unmark(fd);
    void *real = atomic_load_explicit(&sw_real_table[SW_REAL_close], memory_order_relaxed);
    return real ? ((__typeof__(&close))real)(fd) : (int)syscall(SYS_close, fd);
}

SW_HOOK int dup2(int fd, int to)
{
    return is_hidden(to) || is_hidden(fd) ? not_open() : SW_REAL(dup2)(fd, to);
}

SW_HOOK int dup3(int fd, int to, int flags)
{
    return is_hidden(to) || is_hidden(fd) ? not_open() : SW_REAL(dup3)(fd, to, flags);
}

#ifdef SYS_close_range
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

/* Everything of the range but ours. A range that is empty, or flags that the kernel does not know,
 * are for it to judge. */
static int close_around(unsigned int first, unsigned int last, unsigned int flags)
{
    unsigned int from = first;
    if (first > last || flags & CLOSE_RANGE_CLOEXEC) /* ours are close-on-exec */
        return (int)syscall(SYS_close_range, first, last, flags);
    const unsigned int known = last < SW_FDS_MAX ? last : SW_FDS_MAX - 1;
    for (unsigned int fd = first; fd <= known; fd++) {
        if (!is_hidden((int)fd))
            continue;
        if (fd > from && syscall(SYS_close_range, from, fd - 1, flags))
            return -1;
        from = fd + 1;
    }
    return from <= last && from >= first ? (int)syscall(SYS_close_range, from, last, flags) : 0;
}

SW_HOOK int close_range(unsigned int first, unsigned int last, int flags)
{
    return close_around(first, last, (unsigned int)flags);
}

SW_HOOK void closefrom(int lowest)
{
    const unsigned int first = lowest > 0 ? (unsigned int)lowest : 0;
    if (!close_around(first, ~0U, 0))
        return;
    const long max = sysconf(_SC_OPEN_MAX); /* Linux before 5.9 */
    for (long fd = first; fd < max; fd++)
        close((int)fd);
}
#endif
