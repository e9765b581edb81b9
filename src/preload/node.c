/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/probe.h"
#include "base/shm.h"
#include "preload/real.h"
#include "preload/text.h"
#include "rdmacm/rdmacm.h"

#define UVERBS_MAJOR 231
#define UVERBS_MINOR_FIRST 192
#define SYSFS_FILE_BYTES 4096 /* what sysfs says of every file */
#define NAME_PREFIX "sidewire-node:"
#define LINK_PREFIX "/memfd:" NAME_PREFIX
#define LINK_SUFFIX " (deleted)"

/* What open() takes besides O_PATH: the rest is not looked at. */
#define PATH_FLAGS (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* The device number of the kernel's memfds, 0 before we have one. */
static _Atomic dev_t memfd_device;

/* Nothing can be created in sysfs. */
static int missing_error(const struct sw_found *found, int flags)
{
    if (!(flags & O_CREAT) || !found->error_is_last)
        return found->error;
    if (found->slash_follows)
        return EISDIR;
    return found->error == ENOENT ? EACCES : found->error;
}

static int open_error(const struct sw_found *found, int flags)
{
    if (found->error)
        return missing_error(found, flags);
    enum sw_tree_kind kind = sw_node_kind(&found->node);
    bool is_dir = kind == SW_TREE_DIR || kind == SW_TREE_SHARED_DIR;
    if ((flags & O_TMPFILE) == O_TMPFILE)
        return is_dir ? EOPNOTSUPP : ENOTDIR;
    bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_TRUNC | O_APPEND));
    if ((flags & O_CREAT) && (flags & O_EXCL))
        return EEXIST;
    if ((flags & O_DIRECTORY) && !is_dir)
        return ENOTDIR;
    if (kind == SW_TREE_LINK && !(flags & O_PATH))
        return ELOOP; /* only with O_NOFOLLOW a link is found at the end */
    if (is_dir && (writes || (flags & O_CREAT)))
        return EISDIR;
    if (kind == SW_TREE_FILE && writes && !(flags & O_PATH))
        return EACCES;
    return 0;
}

static int make_memfd(const struct sw_found *found, const char *text, size_t len)
{
    char name[SW_TREE_PATH_MAX + sizeof(NAME_PREFIX)];
    snprintf(name, sizeof(name), NAME_PREFIX "%s", found->path);
    int fd = sw_shm_create(name, 0);
    if (fd < 0)
        return fd;
    struct stat status;
    ssize_t put = pwrite(fd, text, len, 0);
    if (put != (ssize_t)len || SW_REAL(fstat)(fd, &status)) {
        close(fd);
        return -EIO;
    }
    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
    atomic_store_explicit(&memfd_device, status.st_dev, memory_order_relaxed);
    return fd;
}

/* Writing to it fails with EBADF then, and F_GETFL tells what the program asked for. */
static int make_read_only(int fd)
{
    char proc[32];
    snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
    const int reader = SW_REAL(open)(proc, O_RDONLY | O_CLOEXEC);
    if (reader < 0)
        return fd;
    close(fd);
    return reader;
}

/* Flags that the kernel refuses are refused before it looks for the file. */
static bool are_flags_wrong(int flags)
{
    return SW_REAL(openat)(-1, "none", flags, 0) && errno == EINVAL;
}

static bool is_rdma_cm(const struct sw_node *node)
{
    return sw_node_kind(node) == SW_TREE_CHAR && !node->dev;
}

static int open_node(const struct sw_found *found, int flags)
{
    char text[SW_TREE_TEXT_MAX];
    int len = 0;
    int err = open_error(found, flags);
    if (err)
        return -err;
    enum sw_tree_kind kind = sw_node_kind(&found->node);
    sw_path_refresh(true);
    if (is_rdma_cm(&found->node) && !(flags & O_PATH))
        return sw_ucm_open(flags);
    if (kind == SW_TREE_FILE)
        len = sw_node_text(&found->node, text);
    if (len < 0)
        return len;
    int fd = make_memfd(found, text, (size_t)len);
    if (fd < 0)
        return fd;
    if ((flags & O_ACCMODE) == O_RDONLY)
        fd = make_read_only(fd);
    if (!(flags & O_CLOEXEC))
        fcntl(fd, F_SETFD, 0);
    if (kind == SW_TREE_DIR || kind == SW_TREE_SHARED_DIR)
        __atomic_store_n(&sw_path_dirs_opened, true, __ATOMIC_RELAXED);
    return fd;
}

int sw_node_open(const struct sw_found *found, int flags)
{
    int saved_errno = errno;
    if (are_flags_wrong(flags))
        return -1;
    int fd = open_node(found, flags & O_PATH ? flags & PATH_FLAGS : flags);
    errno = fd < 0 ? -fd : saved_errno;
    return fd < 0 ? -1 : fd;
}

/* FNV-1a of the path: the same in every process and call. */
uint64_t sw_node_inode(const char *path)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    while (*path)
        hash = (hash ^ (uint8_t)*path++) * 0x100000001b3ull;
    return hash ? hash : 1;
}

static mode_t node_mode(enum sw_tree_kind kind)
{
    switch (kind) {
    case SW_TREE_LINK:
        return S_IFLNK | 0777;
    case SW_TREE_FILE:
        return S_IFREG | 0444;
    case SW_TREE_CHAR:
        return S_IFCHR | 0666;
    case SW_TREE_DIR:
    case SW_TREE_SHARED_DIR:
        break;
    }
    return S_IFDIR | 0755;
}

uint8_t sw_node_dirent_type(enum sw_tree_kind kind)
{
    return (uint8_t)IFTODT(node_mode(kind));
}

int sw_node_store(void *to, const void *from, size_t len)
{
    if (!sw_probe_store(to, from, len))
        return 0;
    errno = EFAULT;
    return -1;
}

static void describe_node(const struct sw_found *found, enum sw_tree_kind kind, struct stat *out)
{
    *out = (struct stat){
        .st_mode = node_mode(kind),
        .st_ino = sw_node_inode(found->path),
        .st_nlink = 1, /* a directory's does not tell its subdirectories */
        .st_blksize = SYSFS_FILE_BYTES,
        .st_size = kind == SW_TREE_FILE ? SYSFS_FILE_BYTES : 0,
        /* sysfs says 0, but cannot seek to holes either: our memfds can, and cp would then make one
           of the rest. */
        .st_blocks = kind == SW_TREE_FILE ? SYSFS_FILE_BYTES / 512 : 0,
    };
    if (is_rdma_cm(&found->node)) {
        out->st_rdev = sw_text_rdma_cm_number();
    } else if (kind == SW_TREE_CHAR) {
        struct sw_netdev_info info;
        sw_netdev_read(found->node.dev, &info);
        out->st_rdev = makedev(UVERBS_MAJOR, (unsigned int)(UVERBS_MINOR_FIRST + info.uverbs));
    }
    struct stat root;
    if (!SW_REAL(stat)("/sys", &root) || !SW_REAL(stat)("/", &root)) {
        out->st_dev = root.st_dev;
        out->st_atim = out->st_mtim = out->st_ctim = root.st_mtim;
    }
}

int sw_node_stat(const struct sw_found *found, struct stat *out)
{
    struct stat status;
    if (found->error) {
        errno = found->error;
        return -1;
    }
    enum sw_tree_kind kind = sw_node_kind(&found->node);
    int saved_errno = errno;
    if (kind != SW_TREE_SHARED_DIR || SW_REAL(stat)(found->path, &status))
        describe_node(found, kind, &status);
    errno = saved_errno;
    return sw_node_store(out, &status, sizeof(status));
}

int sw_node_access(const struct sw_found *found, int mode)
{
    int err = found->error;
    if (!err) {
        enum sw_tree_kind kind = sw_node_kind(&found->node);
        bool is_dir = kind == SW_TREE_DIR || kind == SW_TREE_SHARED_DIR;
        if (((mode & W_OK) && kind != SW_TREE_CHAR) || ((mode & X_OK) && !is_dir))
            err = EACCES;
    }
    if (!err)
        return 0;
    errno = err;
    return -1;
}

bool sw_node_of_fd(int fd, const struct stat *status, struct sw_found *out)
{
    dev_t device = atomic_load_explicit(&memfd_device, memory_order_relaxed);
    if (!device || (status && status->st_dev != device))
        return false;
    int saved_errno = errno;
    char proc[32];
    char target[sizeof(LINK_PREFIX) + SW_TREE_PATH_MAX + sizeof(LINK_SUFFIX)];
    snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
    ssize_t len = SW_REAL(readlink)(proc, target, sizeof(target) - 1);
    errno = saved_errno;
    ssize_t path_len = len - (ssize_t)(sizeof(LINK_PREFIX) - 1 + sizeof(LINK_SUFFIX) - 1);
    if (path_len <= 0 || path_len >= SW_TREE_PATH_MAX ||
        memcmp(target, LINK_PREFIX, sizeof(LINK_PREFIX) - 1))
        return false;
    memcpy(out->path, target + sizeof(LINK_PREFIX) - 1, (size_t)path_len);
    out->path[path_len] = '\0';
    out->error = 0;
    return sw_tree_lookup(out->path, &out->node) == SW_TREE_NODE;
}

bool sw_node_of_channel(const struct stat *status, struct sw_found *out)
{
    if (!sw_ucm_is_channel(status->st_dev, status->st_ino))
        return false;
    out->error = 0;
    memcpy(out->path, SW_TREE_RDMA_CM, sizeof(SW_TREE_RDMA_CM));
    return sw_tree_lookup(out->path, &out->node) == SW_TREE_NODE;
}
