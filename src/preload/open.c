/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of the calls that open files. */
#include <errno.h>
#include <stdarg.h>

#include "preload/node.h"
#include "preload/real.h"

#define NEEDS_MODE(flags) (((flags)&O_CREAT) || ((flags)&O_TMPFILE) == O_TMPFILE)

/* The mode is there only if the flags say so. */
#define READ_MODE(flags, mode)            \
    mode_t mode = 0;                      \
    if (NEEDS_MODE(flags)) {              \
        va_list args;                     \
        va_start(args, flags);            \
        mode = (mode_t)va_arg(args, int); \
        va_end(args);                     \
    }

static bool follows_link(int flags)
{
    if (flags & O_PATH)
        return !(flags & O_NOFOLLOW);
    return !(flags & O_NOFOLLOW) && !((flags & O_CREAT) && (flags & O_EXCL));
}

#define HOOK_OPEN(name)                                                 \
    SW_HOOK int name(const char *path, int flags, ...)                  \
    {                                                                   \
        struct sw_found found;                                          \
        READ_MODE(flags, mode)                                          \
        if (sw_path_find(AT_FDCWD, &path, follows_link(flags), &found)) \
            return sw_node_open(&found, flags);                         \
        return SW_REAL(name)(path, flags, mode);                        \
    }
HOOK_OPEN(open)
HOOK_OPEN(open64)

#define HOOK_OPENAT(name)                                            \
    SW_HOOK int name(int dirfd, const char *path, int flags, ...)    \
    {                                                                \
        struct sw_found found;                                       \
        READ_MODE(flags, mode)                                       \
        if (sw_path_find(dirfd, &path, follows_link(flags), &found)) \
            return sw_node_open(&found, flags);                      \
        return SW_REAL(name)(dirfd, path, flags, mode);              \
    }
HOOK_OPENAT(openat)
HOOK_OPENAT(openat64)

/* What _FORTIFY_SOURCE makes of calls without a mode. */
#define HOOK_OPEN_2(name)                                               \
    SW_HOOK int name(const char *path, int flags)                       \
    {                                                                   \
        struct sw_found found;                                          \
        if (sw_path_find(AT_FDCWD, &path, follows_link(flags), &found)) \
            return sw_node_open(&found, flags);                         \
        return SW_REAL(name)(path, flags);                              \
    }
HOOK_OPEN_2(__open_2)
HOOK_OPEN_2(__open64_2)

#define HOOK_OPENAT_2(name)                                          \
    SW_HOOK int name(int dirfd, const char *path, int flags)         \
    {                                                                \
        struct sw_found found;                                       \
        if (sw_path_find(dirfd, &path, follows_link(flags), &found)) \
            return sw_node_open(&found, flags);                      \
        return SW_REAL(name)(dirfd, path, flags);                    \
    }
HOOK_OPENAT_2(__openat_2)
HOOK_OPENAT_2(__openat64_2)

#define HOOK_CREAT(name)                                               \
    SW_HOOK int name(const char *path, mode_t mode)                    \
    {                                                                  \
        struct sw_found found;                                         \
        if (sw_path_find(AT_FDCWD, &path, true, &found))               \
            return sw_node_open(&found, O_CREAT | O_WRONLY | O_TRUNC); \
        return SW_REAL(name)(path, mode);                              \
    }
HOOK_CREAT(creat)
HOOK_CREAT(creat64)

/* The open() flags of an fopen() mode; -1 for none that libc knows. */
static int stdio_flags(const char *mode)
{
    int flags;
    switch (*mode) {
    case 'r':
        flags = O_RDONLY;
        break;
    case 'w':
        flags = O_WRONLY | O_CREAT | O_TRUNC;
        break;
    case 'a':
        flags = O_WRONLY | O_CREAT | O_APPEND;
        break;
    default:
        return -1;
    }
    for (const char *c = mode + 1; *c && *c != ','; c++) {
        if (*c == '+')
            flags = (flags & ~O_ACCMODE) | O_RDWR;
        else if (*c == 'x')
            flags |= O_EXCL;
        else if (*c == 'e')
            flags |= O_CLOEXEC;
    }
    return flags;
}

static int open_for_stdio(const struct sw_found *found, const char *mode)
{
    int flags = stdio_flags(mode);
    if (flags < 0) {
        errno = EINVAL;
        return -1;
    }
    return sw_node_open(found, flags);
}

static FILE *node_fopen(const struct sw_found *found, const char *mode)
{
    int fd = open_for_stdio(found, mode);
    FILE *stream = fd < 0 ? NULL : fdopen(fd, mode);
    if (fd >= 0 && !stream)
        close(fd);
    return stream;
}

#define HOOK_FOPEN(name)                                   \
    SW_HOOK FILE *name(const char *path, const char *mode) \
    {                                                      \
        struct sw_found found;                             \
        if (sw_path_find(AT_FDCWD, &path, true, &found))   \
            return node_fopen(&found, mode);               \
        return SW_REAL(name)(path, mode);                  \
    }
HOOK_FOPEN(fopen)
HOOK_FOPEN(fopen64)

/* Opens the node first and lets the stream take it over through its name in /proc. On failure the
 * stream is closed, as always. */
static FILE *node_freopen(const struct sw_found *found, const char *mode, FILE *stream)
{
    int fd = open_for_stdio(found, mode);
    if (fd < 0) {
        int err = errno;
        fclose(stream);
        errno = err;
        return NULL;
    }
    char proc[32];
    snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
    FILE *reopened = SW_REAL(freopen)(proc, mode, stream);
    int err = errno;
    close(fd);
    errno = err;
    return reopened;
}

#define HOOK_FREOPEN(name)                                               \
    SW_HOOK FILE *name(const char *path, const char *mode, FILE *stream) \
    {                                                                    \
        struct sw_found found;                                           \
        if (sw_path_find(AT_FDCWD, &path, true, &found))                 \
            return node_freopen(&found, mode, stream);                   \
        return SW_REAL(name)(path, mode, stream);                        \
    }
HOOK_FREOPEN(freopen)
HOOK_FREOPEN(freopen64)
