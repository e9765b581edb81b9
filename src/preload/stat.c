/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of the calls that ask about files: the stat and access families, and extended attributes.
 */
#include <assert.h>
#include <errno.h>
#include <sys/sysmacros.h>

#include "preload/node.h"
#include "preload/real.h"

static_assert(sizeof(struct stat) == sizeof(struct stat64), "64-bit systems have one struct stat");

static int node_stat64(const struct sw_found *found, struct stat64 *out)
{
    return sw_node_stat(found, (struct stat *)out);
}

#define HOOK_STAT(name, type, follow, fill)                \
    SW_HOOK int name(const char *path, type *out)          \
    {                                                      \
        struct sw_found found;                             \
        if (sw_path_find(AT_FDCWD, &path, follow, &found)) \
            return fill(&found, out);                      \
        return SW_REAL(name)(path, out);                   \
    }
HOOK_STAT(stat, struct stat, true, sw_node_stat)
HOOK_STAT(stat64, struct stat64, true, node_stat64)
HOOK_STAT(lstat, struct stat, false, sw_node_stat)
HOOK_STAT(lstat64, struct stat64, false, node_stat64)

/* The entry points of programs built with a glibc before 2.33. A call of an unknown version is
 * refused by libc for any path, also for one that it knows. */
#define HOOK_XSTAT(name, type, follow, fill)                                    \
    SW_HOOK int name(int version, const char *path, type *out)                  \
    {                                                                           \
        struct sw_found found;                                                  \
        type root;                                                              \
        if (sw_path_find(AT_FDCWD, &path, follow, &found))                      \
            return SW_REAL(name)(version, "/", &root) ? -1 : fill(&found, out); \
        return SW_REAL(name)(version, path, out);                               \
    }
HOOK_XSTAT(__xstat, struct stat, true, sw_node_stat)
HOOK_XSTAT(__xstat64, struct stat64, true, node_stat64)
HOOK_XSTAT(__lxstat, struct stat, false, sw_node_stat)
HOOK_XSTAT(__lxstat64, struct stat64, false, node_stat64)

/* A descriptor of ours tells what its node would. */
static int fix_fstat(int fd, int result, struct stat *out)
{
    struct sw_found found;
    if (result == 0 && S_ISREG(out->st_mode) && sw_node_of_fd(fd, out, &found))
        return sw_node_stat(&found, out);
    if (result == 0 && S_ISFIFO(out->st_mode) && sw_node_of_channel(out, &found))
        return sw_node_stat(&found, out);
    return result;
}

SW_HOOK int fstat(int fd, struct stat *out)
{
    return fix_fstat(fd, SW_REAL(fstat)(fd, out), out);
}

SW_HOOK int fstat64(int fd, struct stat64 *out)
{
    return fix_fstat(fd, SW_REAL(fstat64)(fd, out), (struct stat *)out);
}

SW_HOOK int __fxstat(int version, int fd, struct stat *out)
{
    return fix_fstat(fd, SW_REAL(__fxstat)(version, fd, out), out);
}

SW_HOOK int __fxstat64(int version, int fd, struct stat64 *out)
{
    return fix_fstat(fd, SW_REAL(__fxstat64)(version, fd, out), (struct stat *)out);
}

static bool asks_of_fd(const char *path, int flags)
{
    return (flags & AT_EMPTY_PATH) && (!path || (sw_probe_bytes(path, 1) && !*path));
}

#define HOOK_FSTATAT(name, type, fill)                                                           \
    SW_HOOK int name(int dirfd, const char *path, type *out, int flags)                          \
    {                                                                                            \
        struct sw_found found;                                                                   \
        type root;                                                                               \
        if (asks_of_fd(path, flags))                                                             \
            return fix_fstat(dirfd, SW_REAL(name)(dirfd, path, out, flags), (struct stat *)out); \
        if (sw_path_find(dirfd, &path, !(flags & AT_SYMLINK_NOFOLLOW), &found))                  \
            return SW_REAL(name)(AT_FDCWD, "/", &root, flags) ? -1 : fill(&found, out);          \
        return SW_REAL(name)(dirfd, path, out, flags);                                           \
    }
HOOK_FSTATAT(fstatat, struct stat, sw_node_stat)
HOOK_FSTATAT(fstatat64, struct stat64, node_stat64)

#define HOOK_FXSTATAT(name, type, fill)                                                          \
    SW_HOOK int name(int version, int dirfd, const char *path, type *out, int flags)             \
    {                                                                                            \
        struct sw_found found;                                                                   \
        type root;                                                                               \
        if (asks_of_fd(path, flags)) {                                                           \
            int result = SW_REAL(name)(version, dirfd, path, out, flags);                        \
            return fix_fstat(dirfd, result, (struct stat *)out);                                 \
        }                                                                                        \
        if (sw_path_find(dirfd, &path, !(flags & AT_SYMLINK_NOFOLLOW), &found))                  \
            return SW_REAL(name)(version, AT_FDCWD, "/", &root, flags) ? -1 : fill(&found, out); \
        return SW_REAL(name)(version, dirfd, path, out, flags);                                  \
    }
HOOK_FXSTATAT(__fxstatat, struct stat, sw_node_stat)
HOOK_FXSTATAT(__fxstatat64, struct stat64, node_stat64)

static struct statx_timestamp statx_time(struct timespec time)
{
    return (struct statx_timestamp){.tv_sec = time.tv_sec, .tv_nsec = (uint32_t)time.tv_nsec};
}

static int node_statx(const struct sw_found *found, struct statx *out)
{
    struct stat status;
    if (sw_node_stat(found, &status))
        return -1;
    const struct statx full = {
        .stx_mask = STATX_BASIC_STATS,
        .stx_blksize = (uint32_t)status.st_blksize,
        .stx_nlink = (uint32_t)status.st_nlink,
        .stx_uid = status.st_uid,
        .stx_gid = status.st_gid,
        .stx_mode = (uint16_t)status.st_mode,
        .stx_ino = status.st_ino,
        .stx_size = (uint64_t)status.st_size,
        .stx_blocks = (uint64_t)status.st_blocks,
        .stx_atime = statx_time(status.st_atim),
        .stx_mtime = statx_time(status.st_mtim),
        .stx_ctime = statx_time(status.st_ctim),
        .stx_rdev_major = major(status.st_rdev),
        .stx_rdev_minor = minor(status.st_rdev),
        .stx_dev_major = major(status.st_dev),
        .stx_dev_minor = minor(status.st_dev),
    };
    return sw_node_store(out, &full, sizeof(full));
}

static int fix_statx(int fd, int result, struct statx *out)
{
    struct sw_found found;
    if (result)
        return result;
    struct stat status = {.st_dev = makedev(out->stx_dev_major, out->stx_dev_minor),
                          .st_ino = out->stx_ino};
    const bool is_ours = (S_ISREG(out->stx_mode) && sw_node_of_fd(fd, &status, &found)) ||
                         (S_ISFIFO(out->stx_mode) && sw_node_of_channel(&status, &found));
    return is_ours ? node_statx(&found, out) : result;
}

SW_HOOK int statx(int dirfd, const char *path, int flags, unsigned int mask, struct statx *out)
{
    struct sw_found found;
    struct statx root;
    if (asks_of_fd(path, flags))
        return fix_statx(dirfd, SW_REAL(statx)(dirfd, path, flags, mask, out), out);
    if (sw_path_find(dirfd, &path, !(flags & AT_SYMLINK_NOFOLLOW), &found))
        return SW_REAL(statx)(AT_FDCWD, "/", flags, mask, &root) ? -1 : node_statx(&found, out);
    return SW_REAL(statx)(dirfd, path, flags, mask, out);
}

/* A mode or flags that do not exist are refused whatever the path is. */
static int node_access(const struct sw_found *found, int mode, int flags)
{
    int saved_errno = errno;
    if (SW_REAL(faccessat)(AT_FDCWD, "/", mode, flags) && errno == EINVAL)
        return -1;
    errno = saved_errno;
    return sw_node_access(found, mode);
}

#define HOOK_ACCESS(name, answer)                        \
    SW_HOOK int name(const char *path, int mode)         \
    {                                                    \
        struct sw_found found;                           \
        if (sw_path_find(AT_FDCWD, &path, true, &found)) \
            return answer;                               \
        return SW_REAL(name)(path, mode);                \
    }
HOOK_ACCESS(access, node_access(&found, mode, 0))
/* libc's own, which do not ask the kernel, leave out what they do not know. */
HOOK_ACCESS(euidaccess, sw_node_access(&found, mode &(R_OK | W_OK | X_OK)))
HOOK_ACCESS(eaccess, sw_node_access(&found, mode &(R_OK | W_OK | X_OK)))

SW_HOOK int faccessat(int dirfd, const char *path, int mode, int flags)
{
    struct sw_found found;
    if (sw_path_find(dirfd, &path, !(flags & AT_SYMLINK_NOFOLLOW), &found))
        return node_access(&found, mode, flags);
    return SW_REAL(faccessat)(dirfd, path, mode, flags);
}

/* The kernel looks at the name of an attribute before it looks at the path. */
static bool is_name_error(int error)
{
    return error == EFAULT || error == ERANGE;
}

/* Our files have no extended attributes; `ls -l` complains if it is told that there is no file. */
#define HOOK_GETXATTR(name, follow)                                                      \
    SW_HOOK ssize_t name(const char *path, const char *attribute, void *out, size_t len) \
    {                                                                                    \
        struct sw_found found;                                                           \
        if (sw_path_find(AT_FDCWD, &path, follow, &found)) {                             \
            if (!SW_REAL(name)("/", attribute, NULL, 0) || !is_name_error(errno))        \
                errno = found.error ? found.error : ENODATA;                             \
            return -1;                                                                   \
        }                                                                                \
        return SW_REAL(name)(path, attribute, out, len);                                 \
    }
HOOK_GETXATTR(getxattr, true)
HOOK_GETXATTR(lgetxattr, false)

#define HOOK_LISTXATTR(name, follow)                              \
    SW_HOOK ssize_t name(const char *path, char *out, size_t len) \
    {                                                             \
        struct sw_found found;                                    \
        if (sw_path_find(AT_FDCWD, &path, follow, &found)) {      \
            if (found.error)                                      \
                errno = found.error;                              \
            return found.error ? -1 : 0;                          \
        }                                                         \
        return SW_REAL(name)(path, out, len);                     \
    }
HOOK_LISTXATTR(listxattr, true)
HOOK_LISTXATTR(llistxattr, false)
