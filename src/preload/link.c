/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of the calls that read links and resolve paths. */
#include <assert.h>
#include <errno.h>
#include <limits.h>

#include "base/minmax.h"
#include "preload/node.h"
#include "preload/real.h"

/* The kernel refuses a length that is none before it looks at the path. */
static bool is_length(size_t max)
{
    return (int)max > 0;
}

static ssize_t node_readlink(const struct sw_found *found, char *out, size_t max)
{
    char target[SW_TREE_TEXT_MAX];
    int len = found->error                                 ? -found->error
              : sw_node_kind(&found->node) == SW_TREE_LINK ? sw_node_text(&found->node, target)
                                                           : -EINVAL;
    if (len < 0) {
        errno = -len;
        return -1;
    }
    size_t copied = sw_min_u64((size_t)len, max);
    return sw_node_store(out, target, copied) ? -1 : (ssize_t)copied;
}

SW_HOOK ssize_t readlink(const char *path, char *out, size_t max)
{
    struct sw_found found;
    if (is_length(max) && sw_path_find(AT_FDCWD, &path, false, &found))
        return node_readlink(&found, out, max);
    return SW_REAL(readlink)(path, out, max);
}

SW_HOOK ssize_t readlinkat(int dirfd, const char *path, char *out, size_t max)
{
    struct sw_found found;
    if (is_length(max) && sw_path_find(dirfd, &path, false, &found))
        return node_readlink(&found, out, max);
    return SW_REAL(readlinkat)(dirfd, path, out, max);
}

/* The checked ones of _FORTIFY_SOURCE: libc's own end the program if `max` is more than the buffer
 * has. */
SW_HOOK ssize_t __readlink_chk(const char *path, char *out, size_t max, size_t out_len)
{
    struct sw_found found;
    if (is_length(max) && max <= out_len && sw_path_find(AT_FDCWD, &path, false, &found))
        return node_readlink(&found, out, max);
    return SW_REAL(__readlink_chk)(path, out, max, out_len);
}

SW_HOOK ssize_t __readlinkat_chk(int dirfd, const char *path, char *out, size_t max, size_t out_len)
{
    struct sw_found found;
    if (is_length(max) && max <= out_len && sw_path_find(dirfd, &path, false, &found))
        return node_readlink(&found, out, max);
    return SW_REAL(__readlinkat_chk)(dirfd, path, out, max, out_len);
}

/* A found path has no links left: it is the answer. */
static char *node_realpath(const struct sw_found *found, char *resolved)
{
    if (found->error) {
        errno = found->error;
        return NULL;
    }
    if (!resolved)
        return strdup(found->path);
    return strcpy(resolved, found->path); /* PATH_MAX there, SW_TREE_PATH_MAX here */
}

static_assert(SW_TREE_PATH_MAX <= PATH_MAX, "our paths fit where realpath() may write");

SW_HOOK char *realpath(const char *path, char *resolved)
{
    struct sw_found found;
    if (sw_path_find(AT_FDCWD, &path, true, &found))
        return node_realpath(&found, resolved);
    return SW_REAL(realpath)(path, resolved);
}

SW_HOOK char *__realpath_chk(const char *path, char *resolved, size_t resolved_len)
{
    struct sw_found found;
    if (resolved_len >= PATH_MAX && sw_path_find(AT_FDCWD, &path, true, &found))
        return node_realpath(&found, resolved);
    return SW_REAL(__realpath_chk)(path, resolved, resolved_len);
}

SW_HOOK char *canonicalize_file_name(const char *path)
{
    struct sw_found found;
    if (sw_path_find(AT_FDCWD, &path, true, &found))
        return node_realpath(&found, NULL);
    return SW_REAL(canonicalize_file_name)(path);
}
