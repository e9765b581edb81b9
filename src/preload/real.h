/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The libc functions behind our hooks: the next definition after this library, so that other
 * preloaded libraries keep working. Resolved by a constructor, or on first use by whoever is
 * earlier; after that a hook costs one load.
 */
#ifndef SW_PRELOAD_REAL_H
#define SW_PRELOAD_REAL_H

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Entry points that compiled programs use and headers do not declare. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dirfd, const char *path, int flags);
int __openat64_2(int dirfd, const char *path, int flags);
int __xstat(int version, const char *path, struct stat *out);
int __xstat64(int version, const char *path, struct stat64 *out);
int __lxstat(int version, const char *path, struct stat *out);
int __lxstat64(int version, const char *path, struct stat64 *out);
int __fxstat(int version, int fd, struct stat *out);
int __fxstat64(int version, int fd, struct stat64 *out);
int __fxstatat(int version, int dirfd, const char *path, struct stat *out, int flags);
int __fxstatat64(int version, int dirfd, const char *path, struct stat64 *out, int flags);
ssize_t __readlink_chk(const char *path, char *out, size_t len, size_t out_len);
ssize_t __readlinkat_chk(int dirfd, const char *path, char *out, size_t len, size_t out_len);
char *__getcwd_chk(char *out, size_t len, size_t out_len);
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t fds_len);
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                const sigset_t *mask, size_t fds_len);
char *__realpath_chk(const char *path, char *resolved, size_t resolved_len);

/* clang-format off */
#define SW_REAL_FUNCTIONS(X)                                                                       \
    X(open) X(open64) X(openat) X(openat64) X(__open_2) X(__open64_2) X(__openat_2)                \
    X(__openat64_2) X(creat) X(creat64) X(fopen) X(fopen64) X(freopen) X(freopen64)                \
    X(stat) X(stat64) X(lstat) X(lstat64) X(fstat) X(fstat64) X(fstatat) X(fstatat64) X(statx)     \
    X(__xstat) X(__xstat64) X(__lxstat) X(__lxstat64) X(__fxstat) X(__fxstat64) X(__fxstatat)      \
    X(__fxstatat64) X(access) X(faccessat) X(euidaccess) X(eaccess)                                \
    X(getxattr) X(lgetxattr) X(listxattr) X(llistxattr)                                            \
    X(readlink) X(readlinkat) X(__readlink_chk) X(__readlinkat_chk) X(realpath) X(__realpath_chk)  \
    X(canonicalize_file_name) X(opendir) X(fdopendir) X(closedir) X(readdir) X(readdir64)          \
    X(readdir_r) X(readdir64_r) X(rewinddir) X(seekdir) X(telldir) X(dirfd)                        \
    X(chdir) X(fchdir) X(getcwd) X(__getcwd_chk) X(get_current_dir_name)                           \
    X(scandir) X(scandir64) X(scandirat) X(scandirat64) X(glob) X(glob64) X(dlopen)                \
    X(ftw) X(ftw64) X(nftw) X(nftw64) X(write) X(madvise) X(mremap)       \
    X(close) X(dup2) X(dup3) X(poll) X(__poll_chk) X(ppoll) X(__ppoll_chk)                         \
    X(epoll_ctl) X(epoll_wait) X(epoll_pwait)                                                      \
    X(sigaction) X(signal) X(sysv_signal) X(sigset) X(sigignore) X(siginterrupt) X(sigprocmask)    \
    X(pthread_sigmask) X(sigblock) X(sigsetmask) X(sighold) X(sigrelse) X(pthread_create)          \
    X(thrd_create) X(posix_spawn) X(posix_spawnp) X(system) X(popen)
/* clang-format on */

enum sw_real {
#define SW_REAL_ID(name) SW_REAL_##name,
    SW_REAL_FUNCTIONS(SW_REAL_ID)
#undef SW_REAL_ID
        SW_REAL_COUNT
};

extern void *_Atomic sw_real_table[SW_REAL_COUNT];
void *sw_real_resolve(enum sw_real function);

static inline void *sw_real_get(enum sw_real function)
{
    void *found = atomic_load_explicit(&sw_real_table[function], memory_order_relaxed);
    return __builtin_expect(found != NULL, 1) ? found : sw_real_resolve(function);
}

#define SW_REAL(name) ((__typeof__(&name))sw_real_get(SW_REAL_##name))

/* Marks a function that takes the place of libc's. */
#define SW_HOOK __attribute__((visibility("default")))

#endif
