/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ftw() and nftw(). libc's own open directories behind the backs of our hooks, so a walk that may
 * come upon our tree is walked here, by the hooked calls, and any other by libc. A directory is
 * read whole before its entries are visited: the number of open descriptors is no concern.
 * POSIX.1-2017 nftw(), nftw(3).
 */
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <search.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/path.h"
#include "preload/real.h"

typedef int (*ftw_fn)(const char *, const struct stat *, int);
typedef int (*nftw_fn)(const char *, const struct stat *, int, struct FTW *);

struct walk {
    nftw_fn visit; /* or: */
    ftw_fn visit_plain;
    int flags;
    int home; /* FTW_CHDIR: what relative paths are relative to; -1 */
    dev_t device;
    void *seen; /* directories, where links are followed: a tree of struct place */
};

struct place {
    dev_t device;
    ino_t inode;
};

static int walk_compare_places(const void *one, const void *other)
{
    const struct place *a = one, *b = other;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    return a->inode < b->inode ? -1 : a->inode > b->inode;
}

/* Whether a directory was visited before; -1: no memory. */
static int was_seen(struct walk *walk, const struct stat *info)
{
    struct place *place = malloc(sizeof(*place));
    if (!place)
        return -1;
    *place = (struct place){info->st_dev, info->st_ino};
    struct place **kept = tsearch(place, &walk->seen, walk_compare_places);
    if (kept && *kept == place)
        return 0;
    free(place);
    return kept ? 1 : -1;
}

static bool go_home(const struct walk *walk)
{
    return walk->home < 0 || fchdir(walk->home) == 0;
}

/* FTW_CHDIR: the program is called in the directory that the entry is in. */
static bool go_beside(const struct walk *walk, const char *path, int base)
{
    if (walk->home < 0 || base == 0)
        return true;
    char *dir = strndup(path, base > 1 ? (size_t)base - 1 : 1);
    bool is_there = dir && chdir(dir) == 0;
    free(dir);
    return is_there;
}

static int report_file(struct walk *walk, const char *path, const struct stat *info, int kind,
                       int base, int level)
{
    if (walk->flags & FTW_MOUNT && kind != FTW_NS && info->st_dev != walk->device)
        return 0;
    if (walk->visit_plain)
        return walk->visit_plain(path, info, kind == FTW_SLN ? FTW_NS : kind);
    struct FTW place = {.base = base, .level = level};
    if (!go_beside(walk, path, base))
        return -1;
    int result = walk->visit(path, info, kind, &place);
    return go_home(walk) ? result : -1;
}

/* The names in a directory, one after the other, each with its NUL, an empty one at the end. NULL
 * with errno. */
static char *list_names(const char *path)
{
    DIR *dir = opendir(path);
    size_t len = 0;
    char *names = dir ? calloc(1, 1) : NULL;
    const struct dirent *entry;
    while (names && (entry = readdir(dir))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        size_t more = strlen(entry->d_name) + 1;
        char *grown = realloc(names, len + more + 1);
        if (!grown) {
            free(names);
            names = NULL;
            break;
        }
        names = grown;
        memcpy(names + len, entry->d_name, more);
        len += more;
        names[len] = '\0';
    }
    int err = errno;
    if (dir)
        closedir(dir);
    errno = err;
    return names;
}

static int visit_node(struct walk *walk, const char *path, int base, int level);

static int visit_entries(struct walk *walk, const char *path, const char *names, int level)
{
    size_t len = strlen(path);
    const char *slash = len && path[len - 1] == '/' ? "" : "/";
    int result = 0;
    for (; *names && !result; names += strlen(names) + 1) {
        char *child;
        int child_len = asprintf(&child, "%s%s%s", path, slash, names);
        if (child_len < 0)
            return -1;
        result = visit_node(walk, child, child_len - (int)strlen(names), level);
        free(child);
        if (walk->flags & FTW_ACTIONRETVAL && result == FTW_SKIP_SUBTREE)
            result = 0; /* of what is no directory: nothing is skipped */
    }
    return walk->flags & FTW_ACTIONRETVAL && result == FTW_SKIP_SIBLINGS ? 0 : result;
}

static int visit_directory(struct walk *walk, const char *path, const struct stat *info, int base,
                           int level)
{
    int seen = walk->flags & FTW_PHYS ? 0 : was_seen(walk, info);
    if (seen)
        return seen < 0 ? -1 : 0;
    if (walk->flags & FTW_MOUNT && info->st_dev != walk->device)
        return 0;
    char *names = list_names(path);
    if (!names)
        return errno == EACCES ? report_file(walk, path, info, FTW_DNR, base, level) : -1;
    int result = walk->flags & FTW_DEPTH ? 0 : report_file(walk, path, info, FTW_D, base, level);
    if (walk->flags & FTW_ACTIONRETVAL && result == FTW_SKIP_SUBTREE)
        names[0] = '\0', result = 0;
    if (!result)
        result = visit_entries(walk, path, names, level + 1);
    free(names);
    if (!result && walk->flags & FTW_DEPTH)
        result = report_file(walk, path, info, FTW_DP, base, level);
    return result;
}

static int visit_node(struct walk *walk, const char *path, int base, int level)
{
    struct stat info = {0};
    const bool follows = !(walk->flags & FTW_PHYS);
    if (follows ? stat(path, &info) : lstat(path, &info)) {
        if (level == 0 || (errno != EACCES && errno != ENOENT))
            return -1;
        bool dangles = follows && !lstat(path, &info) && S_ISLNK(info.st_mode);
        return report_file(walk, path, &info, dangles ? FTW_SLN : FTW_NS, base, level);
    }
    if (level == 0)
        walk->device = info.st_dev;
    if (S_ISDIR(info.st_mode))
        return visit_directory(walk, path, &info, base, level);
    return report_file(walk, path, &info, S_ISLNK(info.st_mode) ? FTW_SL : FTW_F, base, level);
}

static int walk_tree(struct walk *walk, const char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    char *root = strndup(path, len);
    walk->home = walk->flags & FTW_CHDIR ? open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int result = -1;
    if (root && (walk->home >= 0 || !(walk->flags & FTW_CHDIR))) {
        const char *slash = strrchr(root, '/');
        result = visit_node(walk, root, slash && slash[1] ? (int)(slash + 1 - root) : 0, 0);
    }
    int err = errno;
    if (walk->home >= 0)
        close(walk->home);
    tdestroy(walk->seen, free);
    free(root);
    errno = err;
    return result;
}

/* Whether the walk begins in our tree, or above it among the kernel's directories. */
static bool may_meet_tree(const char *path)
{
    struct sw_found found;
    const char *given = path;
    if (!path || !*path)
        return false;
    if (sw_path_find(AT_FDCWD, &given, true, &found))
        return true;
    if (strncmp(path, "/sys", 4) && strncmp(path, "/dev", 4))
        return false;
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    char *dir = strndup(path, len);
    bool may = dir && sw_tree_lookup(dir, &found.node) != SW_TREE_FOREIGN;
    free(dir);
    return may;
}

static int walk_plain(const char *path, ftw_fn visit_plain)
{
    struct walk walk = {.visit_plain = visit_plain};
    return walk_tree(&walk, path);
}

static int walk_with(const char *path, nftw_fn visit_full, int flags)
{
    struct walk walk = {.visit = visit_full, .flags = flags};
    return walk_tree(&walk, path);
}

/* struct stat64 is struct stat on 64-bit systems. */
#define HOOK_FTW(name, stat)                                                                       \
    SW_HOOK int name(const char *path, int (*fn)(const char *, const struct stat *, int), int fds) \
    {                                                                                              \
        return may_meet_tree(path) ? walk_plain(path, (ftw_fn)fn) : SW_REAL(name)(path, fn, fds);  \
    }
HOOK_FTW(ftw, stat)
HOOK_FTW(ftw64, stat64)

/* libc refuses flags that it does not know. */
static bool are_flags_known(int flags)
{
    return !(flags & ~(FTW_PHYS | FTW_MOUNT | FTW_CHDIR | FTW_DEPTH | FTW_ACTIONRETVAL));
}

#define HOOK_NFTW(name, stat)                                                                  \
    SW_HOOK int name(const char *path,                                                         \
                     int (*fn)(const char *, const struct stat *, int, struct FTW *), int fds, \
                     int flags)                                                                \
    {                                                                                          \
        return are_flags_known(flags) && may_meet_tree(path)                                   \
                   ? walk_with(path, (nftw_fn)fn, flags)                                       \
                   : SW_REAL(name)(path, fn, fds, flags);                                      \
    }
HOOK_NFTW(nftw, stat)
HOOK_NFTW(nftw64, stat64)
