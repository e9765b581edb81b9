/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tells which paths given to libc are ours. Understands relative paths, descriptors of our
 * directories, ".", "..", double slashes and our links; a link of the kernel's that leads into the
 * tree is not seen.
 */
#ifndef SW_PRELOAD_PATH_H
#define SW_PRELOAD_PATH_H

#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "base/probe.h"
#include "preload/tree.h"

struct sw_found {
    int error; /* a positive errno: nothing is there; otherwise the node and its path */
    bool error_is_last, slash_follows; /* an error of the last component; a slash is behind it */
    struct sw_node node;
    char path[SW_TREE_PATH_MAX]; /* without links but perhaps a last one */
};

/* Reads the interfaces again: always, or if that was some milliseconds ago. */
void sw_path_refresh(bool now);

bool sw_path_find_slow(int dirfd, const char **path, bool follow, struct sw_found *out);

/* Set once this process has got a descriptor of a directory of ours: only then a relative path of
 * any kind can be ours. */
extern bool sw_path_dirs_opened;
/* While the working directory is ours: cwd.h. */
extern bool sw_path_cwd_is_ours;

/* Tells the paths that cannot be ours from all others in a few comparisons. A path that cannot be
 * read, or is longer than the kernel takes, is for the kernel to refuse. */
static inline bool sw_path_is_suspect(int dirfd, const char *path)
{
    if (!sw_probe_string(path, PATH_MAX))
        return false;
    if (*path != '/')
        return __atomic_load_n(dirfd >= 0 ? &sw_path_dirs_opened : &sw_path_cwd_is_ours,
                               __ATOMIC_RELAXED) ||
               strstr(path, "infiniband") || strstr(path, "sw_") || strstr(path, "uverbs") ||
               strstr(path, "sidewire") || strstr(path, "rdma_cm");
    path += strspn(path, "/");
    return (!strncmp(path, "sys/", 4) || !strncmp(path, "dev/", 4)) &&
           (strstr(path, "infiniband") || strstr(path, "virtual/sidewire") ||
            strstr(path, "misc/rdma_cm"));
}

/*
 * True if the answer to a call about `*path` is ours: `out` is filled. Otherwise the call goes to
 * the kernel with `*path`, which is changed to a path in `out` if a link of ours or a descriptor of
 * a directory of ours led out of the tree. `follow`: whether the call follows a link in the last
 * component. Keeps errno.
 */
static inline bool sw_path_find(int dirfd, const char **path, bool follow, struct sw_found *out)
{
    return __builtin_expect(sw_path_is_suspect(dirfd, *path), 0) &&
           sw_path_find_slow(dirfd, path, follow, out);
}

#endif
