/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/dir.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "preload/real.h"

#define DIR_MAGIC \
    0x7269642d65646973ull /* a libc stream begins with its descriptor, a small number */

struct sw_dir {
    uint64_t magic;
    struct sw_dir *self;
    struct sw_found found;
    int fd; /* -1 until somebody asks for it */
    size_t next;
    size_t count;
    size_t capacity;
    struct dirent *entries;
    bool out_of_memory;
    bool is_above; /* the kernel's: found.path alone counts */
};

struct sw_dir *sw_dir_of(DIR *stream)
{
    struct sw_dir *dir = (void *)stream;
    return dir && dir->magic == DIR_MAGIC && dir->self == dir ? dir : NULL;
}

static void dir_add_entry(struct sw_dir *dir, const char *name, uint64_t inode, uint8_t type)
{
    if (dir->count == dir->capacity) {
        size_t capacity = dir->capacity ? dir->capacity * 2 : 32;
        struct dirent *grown = reallocarray(dir->entries, capacity, sizeof(*grown));
        if (!grown) {
            dir->out_of_memory = true;
            return;
        }
        dir->entries = grown;
        dir->capacity = capacity;
    }
    struct dirent *entry = &dir->entries[dir->count++];
    *entry = (struct dirent){
        .d_ino = inode,
        .d_off = (off_t)dir->count,
        .d_reclen = sizeof(*entry),
        .d_type = type,
    };
    memcpy(entry->d_name, name, strnlen(name, sizeof(entry->d_name) - 1));
}

static void add_node(void *arg, const char *name, enum sw_tree_kind kind)
{
    struct sw_dir *dir = arg;
    char path[2 * SW_TREE_PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", dir->found.path, name);
    dir_add_entry(dir, name, sw_node_inode(path), sw_node_dirent_type(kind));
}

static bool has_entry(const struct sw_dir *dir, const char *name)
{
    for (size_t i = 0; i < dir->count; i++)
        if (!strcmp(dir->entries[i].d_name, name))
            return true;
    return false;
}

/* The kernel's entries of a directory that we share with it, "." and ".." among them. */
static void add_kernel_entries(struct sw_dir *dir)
{
    DIR *kernel = SW_REAL(opendir)(dir->found.path);
    const struct dirent *entry;
    while (kernel && (entry = SW_REAL(readdir)(kernel)))
        if (!has_entry(dir, entry->d_name))
            dir_add_entry(dir, entry->d_name, entry->d_ino, entry->d_type);
    if (kernel)
        SW_REAL(closedir)(kernel);
}

static void add_root(void *arg, const char *name, enum sw_tree_kind kind)
{
    if (!has_entry(arg, name))
        add_node(arg, name, kind);
}

static void add_dots(struct sw_dir *dir)
{
    char parent[SW_TREE_PATH_MAX];
    const char *path = dir->found.path;
    size_t len = (size_t)(strrchr(path, '/') - path);
    memcpy(parent, path, len);
    parent[len] = '\0';
    if (!has_entry(dir, "."))
        dir_add_entry(dir, ".", sw_node_inode(path), DT_DIR);
    if (!has_entry(dir, ".."))
        dir_add_entry(dir, "..", sw_node_inode(parent), DT_DIR);
}

int sw_dir_rewind(struct sw_dir *dir)
{
    int saved_errno = errno;
    dir->next = dir->count = 0;
    if (dir->is_above) {
        add_kernel_entries(dir);
        sw_tree_list_roots(dir->found.path, add_root, dir);
        errno = dir->out_of_memory ? ENOMEM : saved_errno;
        return dir->out_of_memory ? -1 : 0;
    }
    sw_path_refresh(true);
    sw_node_list(&dir->found.node, add_node, dir);
    if (sw_node_kind(&dir->found.node) == SW_TREE_SHARED_DIR)
        add_kernel_entries(dir);
    add_dots(dir);
    errno = dir->out_of_memory ? ENOMEM : saved_errno;
    return dir->out_of_memory ? -1 : 0;
}

struct sw_dir *sw_dir_open(const struct sw_found *found, int fd)
{
    int err = found->error;
    enum sw_tree_kind kind = err ? SW_TREE_FILE : sw_node_kind(&found->node);
    if (!err && kind != SW_TREE_DIR && kind != SW_TREE_SHARED_DIR)
        err = ENOTDIR;
    struct sw_dir *dir = err ? NULL : calloc(1, sizeof(*dir));
    if (!dir) {
        errno = err ? err : ENOMEM;
        return NULL;
    }
    dir->magic = DIR_MAGIC;
    dir->self = dir;
    dir->found = *found;
    dir->fd = -1;
    if (sw_dir_rewind(dir)) {
        sw_dir_close(dir);
        return NULL;
    }
    dir->fd = fd;
    return dir;
}

struct sw_dir *sw_dir_open_above(const char *path)
{
    struct sw_dir *dir = strlen(path) < SW_TREE_PATH_MAX ? calloc(1, sizeof(*dir)) : NULL;
    if (!dir) {
        errno = ENOMEM;
        return NULL;
    }
    dir->magic = DIR_MAGIC;
    dir->self = dir;
    dir->is_above = true;
    memcpy(dir->found.path, path, strlen(path) + 1);
    dir->fd = SW_REAL(open)(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir->fd < 0 || sw_dir_rewind(dir)) {
        sw_dir_close(dir);
        return NULL;
    }
    return dir;
}

void sw_dir_close(struct sw_dir *dir)
{
    if (dir->fd >= 0)
        close(dir->fd);
    dir->magic = 0;
    free(dir->entries);
    free(dir);
}

struct dirent *sw_dir_read(struct sw_dir *dir)
{
    return dir->next < dir->count ? &dir->entries[dir->next++] : NULL;
}

void sw_dir_seek(struct sw_dir *dir, long at)
{
    dir->next = at < 0 || (size_t)at > dir->count ? dir->count : (size_t)at;
}

long sw_dir_tell(const struct sw_dir *dir)
{
    return (long)dir->next;
}

int sw_dir_fd(struct sw_dir *dir)
{
    if (dir->fd < 0)
        dir->fd = sw_node_open(&dir->found, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir->fd;
}
