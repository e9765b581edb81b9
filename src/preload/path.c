/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "preload/cwd.h"
#include "preload/node.h"
#include "preload/real.h"

#define LINKS_MAX 40 /* as the kernel: then ELOOP */
#define FRESH_NS (10 * SW_NS_PER_MS)

bool sw_path_dirs_opened;

/* A walk from the root, component by component. out->path is what was walked. */
struct walk {
    struct sw_found *out;
    size_t len; /* of out->path */
    char todo[SW_TREE_PATH_MAX];
    const char *at;           /* in todo */
    enum sw_tree_match match; /* of out->path; a node's is out->node */
    bool left_kernel;         /* the kernel would not get here by the program's path */
    int links;
};

void sw_path_refresh(bool now)
{
    static _Atomic uint64_t refreshed_ns;
    /* A signal handler that opens one of our files while its thread is in here takes the list as it
     * is. */
    static _Thread_local bool busy __attribute__((tls_model("initial-exec")));
    uint64_t now_ns = sw_clock_ns();
    uint64_t last_ns = atomic_load_explicit(&refreshed_ns, memory_order_relaxed);
    if (busy || (!now && last_ns && now_ns - last_ns < FRESH_NS))
        return;
    int saved_errno = errno;
    busy = true;
    sw_netdev_refresh(NULL, NULL); /* without netlink the last list stays */
    busy = false;
    atomic_store_explicit(&refreshed_ns, now_ns, memory_order_relaxed);
    errno = saved_errno;
}

static void walk_lookup(struct walk *walk)
{
    bool was_ours = walk->match == SW_TREE_NODE;
    walk->match = walk->len ? sw_tree_lookup(walk->out->path, &walk->out->node) : SW_TREE_ABOVE;
    if (walk->match == SW_TREE_NODE && !was_ours)
        sw_path_refresh(false); /* from here on names depend on it */
}

static void walk_up(struct walk *walk)
{
    while (walk->len && walk->out->path[walk->len - 1] != '/')
        walk->len--;
    if (walk->len)
        walk->len--;
    walk->out->path[walk->len] = '\0';
}

static bool walk_append(struct walk *walk, const char *name, size_t len)
{
    if (walk->len + 1 + len >= SW_TREE_PATH_MAX)
        return false;
    walk->out->path[walk->len++] = '/';
    memcpy(walk->out->path + walk->len, name, len);
    walk->len += len;
    walk->out->path[walk->len] = '\0';
    return true;
}

/* Puts the target of the link that was just walked before what is left. */
static int walk_link(struct walk *walk)
{
    char target[SW_TREE_TEXT_MAX];
    char rest[SW_TREE_PATH_MAX];
    if (++walk->links > LINKS_MAX)
        return ELOOP;
    int target_len = sw_node_text(&walk->out->node, target);
    if (target_len < 0)
        return -target_len;
    size_t rest_len = strlen(walk->at);
    memcpy(rest, walk->at, rest_len + 1);
    if ((size_t)target_len + rest_len >= sizeof(walk->todo))
        return ENAMETOOLONG;
    memcpy(walk->todo, target, (size_t)target_len);
    memcpy(walk->todo + target_len, rest, rest_len + 1);
    walk->at = walk->todo;
    walk->left_kernel = true;
    walk_up(walk);
    walk_lookup(walk);
    return 0;
}

/* Takes one component. 0 to go on, a positive errno if the path ends badly in our tree, -1 if the
 * rest is the kernel's. */
static int walk_step(struct walk *walk, bool follow)
{
    size_t len = strcspn(walk->at, "/");
    const char *name = walk->at;
    bool in_ours = walk->match == SW_TREE_NODE;
    walk->at += len;
    if (len == 1 && name[0] == '.')
        return 0;
    if (len == 2 && name[0] == '.' && name[1] == '.') {
        walk_up(walk);
        walk_lookup(walk);
        return 0;
    }
    bool in_shared = in_ours && sw_node_kind(&walk->out->node) == SW_TREE_SHARED_DIR;
    if (!walk_append(walk, name, len))
        return in_ours ? ENAMETOOLONG : -1;
    walk_lookup(walk);
    if (walk->match == SW_TREE_FOREIGN)
        return in_ours && !in_shared ? ENOENT : -1;
    if (walk->match != SW_TREE_NODE)
        return 0;
    enum sw_tree_kind kind = sw_node_kind(&walk->out->node);
    if (kind == SW_TREE_LINK && (*walk->at || follow))
        return walk_link(walk);
    if ((kind == SW_TREE_FILE || kind == SW_TREE_CHAR) && *walk->at)
        return ENOTDIR;
    return 0;
}

/* The path behind a descriptor or the working directory. */
static bool base_path(int dirfd, char out[SW_TREE_PATH_MAX], bool *is_ours)
{
    *is_ours = false;
    if (dirfd == AT_FDCWD) {
        *is_ours = sw_cwd_get(out);
        return *is_ours || SW_REAL(getcwd)(out, SW_TREE_PATH_MAX);
    }
    struct sw_found found;
    if (sw_node_of_fd(dirfd, NULL, &found)) {
        *is_ours = true;
        memcpy(out, found.path, strlen(found.path) + 1);
        return true;
    }
    char proc[32];
    snprintf(proc, sizeof(proc), "/proc/self/fd/%d", dirfd);
    ssize_t len = SW_REAL(readlink)(proc, out, SW_TREE_PATH_MAX - 1);
    if (len <= 0 || out[0] != '/')
        return false;
    out[len] = '\0';
    return true;
}

static bool walk_start(struct walk *walk, int dirfd, const char *path)
{
    size_t used = 0;
    if (*path != '/') {
        if (!*path || !base_path(dirfd, walk->todo, &walk->left_kernel))
            return false;
        used = strlen(walk->todo);
        walk->todo[used++] = '/';
    }
    size_t len = strlen(path);
    if (used + len >= sizeof(walk->todo))
        return false;
    memcpy(walk->todo + used, path, len + 1);
    walk->at = walk->todo;
    walk->out->path[0] = '\0';
    return true;
}

/* Where the walk left the tree: the rest of the path is for the kernel to walk. */
static bool path_hand_over(struct walk *walk, const char **path)
{
    size_t rest_len = strlen(walk->at);
    if (!walk->left_kernel)
        return false;
    if (walk->len + rest_len >= SW_TREE_PATH_MAX) {
        walk->out->error = ENAMETOOLONG;
        return true;
    }
    memcpy(walk->out->path + walk->len, walk->at, rest_len + 1);
    *path = walk->len + rest_len ? walk->out->path : "/";
    return false;
}

bool sw_path_find_slow(int dirfd, const char **path, bool follow, struct sw_found *out)
{
    int saved_errno = errno;
    struct walk walk = {.out = out, .match = SW_TREE_ABOVE};
    int result = 0;
    out->error = 0;
    bool started = walk_start(&walk, dirfd, *path);
    errno = saved_errno;
    if (!started)
        return false;
    while (result == 0) {
        size_t slashes = strspn(walk.at, "/");
        if (!walk.at[slashes])
            break;
        walk.at += slashes;
        result = walk_step(&walk, follow);
    }
    if (result > 0) {
        out->error = result;
        out->slash_follows = *walk.at == '/';
        out->error_is_last = !walk.at[strspn(walk.at, "/")];
        return true;
    }
    if (result == 0 && walk.match == SW_TREE_NODE)
        return true;
    return path_hand_over(&walk, path);
}
