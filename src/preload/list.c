/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of the calls that list directories: streams, scandir, glob. */
#include <assert.h>
#include <errno.h>
#include <link.h>

#include "preload/dir.h"
#include "preload/real.h"

/* Stock libibverbs lists the class directories to find devices for its drivers. It shall find those
 * that it can drive; ours it would only warn about. */
static int match_stock(struct dl_phdr_info *info, size_t size, void *caller)
{
    (void)size;
    uintptr_t address = (uintptr_t)caller;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && address >= start &&
            address - start < info->dlpi_phdr[i].p_memsz) {
            const char *slash = strrchr(info->dlpi_name, '/');
            const char *base = slash ? slash + 1 : info->dlpi_name;
            return strncmp(base, "libibverbs.so", strlen("libibverbs.so")) ? -1 : 1;
        }
    }
    return 0;
}

static bool called_by_stock(void *caller)
{
    return dl_iterate_phdr(match_stock, caller) == 1;
}

/* Opens a directory of the kernel's, with ours among its entries where they belong. */
static DIR *open_kernel(const char *path)
{
    char cwd[SW_TREE_PATH_MAX];
    const char *place = path;
    if (!sw_probe_string(path, PATH_MAX))
        return SW_REAL(opendir)(path);
    if (path[0] == '.' && !path[1])
        place = SW_REAL(getcwd)(cwd, sizeof(cwd));
    return place && sw_tree_list_roots(place, NULL, NULL) ? (DIR *)sw_dir_open_above(place)
                                                          : SW_REAL(opendir)(path);
}

SW_HOOK DIR *opendir(const char *path)
{
    struct sw_found found;
    if (!sw_path_find(AT_FDCWD, &path, true, &found))
        return open_kernel(path);
    if (!found.error && sw_node_kind(&found.node) == SW_TREE_SHARED_DIR &&
        called_by_stock(__builtin_return_address(0)))
        return SW_REAL(opendir)(path);
    return (DIR *)sw_dir_open(&found, -1);
}

SW_HOOK DIR *fdopendir(int fd)
{
    struct sw_found found;
    if (sw_node_of_fd(fd, NULL, &found))
        return (DIR *)sw_dir_open(&found, fd);
    return SW_REAL(fdopendir)(fd);
}

SW_HOOK int closedir(DIR *stream)
{
    struct sw_dir *dir = sw_dir_of(stream);
    if (!dir)
        return SW_REAL(closedir)(stream);
    sw_dir_close(dir);
    return 0;
}

SW_HOOK struct dirent *readdir(DIR *stream)
{
    struct sw_dir *dir = sw_dir_of(stream);
    return dir ? sw_dir_read(dir) : SW_REAL(readdir)(stream);
}

static_assert(sizeof(struct dirent) == sizeof(struct dirent64), "64-bit systems have one dirent");

SW_HOOK struct dirent64 *readdir64(DIR *stream)
{
    struct sw_dir *dir = sw_dir_of(stream);
    return dir ? (struct dirent64 *)sw_dir_read(dir) : SW_REAL(readdir64)(stream);
}

/* Deprecated, but binaries use them. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static int read_into(struct sw_dir *dir, struct dirent *entry, struct dirent **result)
{
    const struct dirent *next = sw_dir_read(dir);
    if (next)
        memcpy(entry, next, offsetof(struct dirent, d_name) + strlen(next->d_name) + 1);
    *result = next ? entry : NULL;
    return 0;
}

SW_HOOK int readdir_r(DIR *stream, struct dirent *entry, struct dirent **result)
{
    struct sw_dir *dir = sw_dir_of(stream);
    return dir ? read_into(dir, entry, result) : SW_REAL(readdir_r)(stream, entry, result);
}

SW_HOOK int readdir64_r(DIR *stream, struct dirent64 *entry, struct dirent64 **result)
{
    struct sw_dir *dir = sw_dir_of(stream);
    return dir ? read_into(dir, (struct dirent *)entry, (struct dirent **)result)
               : SW_REAL(readdir64_r)(stream, entry, result);
}
#pragma GCC diagnostic pop

SW_HOOK void rewinddir(DIR *stream)
{
    struct sw_dir *dir = sw_dir_of(stream);
    if (dir)
        sw_dir_rewind(dir);
    else
        SW_REAL(rewinddir)(stream);
}

SW_HOOK void seekdir(DIR *stream, long at)
{
    struct sw_dir *dir = sw_dir_of(stream);
    if (dir)
        sw_dir_seek(dir, at);
    else
        SW_REAL(seekdir)(stream, at);
}

SW_HOOK long telldir(DIR *stream)
{
    struct sw_dir *dir = sw_dir_of(stream);
    return dir ? sw_dir_tell(dir) : SW_REAL(telldir)(stream);
}

SW_HOOK int dirfd(DIR *stream)
{
    struct sw_dir *dir = sw_dir_of(stream);
    return dir ? sw_dir_fd(dir) : SW_REAL(dirfd)(stream);
}

typedef int (*filter_fn)(const struct dirent *);
typedef int (*compare_fn)(const struct dirent **, const struct dirent **);

static struct dirent *copy_entry(const struct dirent *entry)
{
    size_t size = offsetof(struct dirent, d_name) + strlen(entry->d_name) + 1;
    struct dirent *copy = malloc(size);
    if (copy) {
        memcpy(copy, entry, size);
        copy->d_reclen = (unsigned short)size;
    }
    return copy;
}

static int scan_tree(const struct sw_found *found, struct dirent ***result, filter_fn filter,
                     compare_fn compare)
{
    struct sw_dir *dir = sw_dir_open(found, -1);
    if (!dir)
        return -1;
    struct dirent **list = NULL;
    size_t count = 0;
    const struct dirent *entry;
    while ((entry = sw_dir_read(dir))) {
        if (filter && !filter(entry))
            continue;
        struct dirent **grown = reallocarray(list, count + 1, sizeof(*list));
        struct dirent *copy = grown ? copy_entry(entry) : NULL;
        list = grown ? grown : list;
        if (!copy) {
            while (count)
                free(list[--count]);
            free(list);
            sw_dir_close(dir);
            errno = ENOMEM;
            return -1;
        }
        list[count++] = copy;
    }
    sw_dir_close(dir);
    if (compare && count)
        qsort(list, count, sizeof(*list), (int (*)(const void *, const void *))compare);
    *result = list ? list : malloc(sizeof(*list)); /* callers free it also when it is empty */
    return (int)count;
}

#define HOOK_SCANDIR(name, dirent)                                                               \
    SW_HOOK int name(const char *path, struct dirent ***result, int (*f)(const struct dirent *), \
                     int (*c)(const struct dirent **, const struct dirent **))                   \
    {                                                                                            \
        struct sw_found found;                                                                   \
        if (sw_path_find(AT_FDCWD, &path, true, &found))                                         \
            return scan_tree(&found, (void *)result, (filter_fn)f, (compare_fn)c);               \
        return SW_REAL(name)(path, result, f, c);                                                \
    }
HOOK_SCANDIR(scandir, dirent)
HOOK_SCANDIR(scandir64, dirent64)

#define HOOK_SCANDIRAT(name, dirent)                                               \
    SW_HOOK int name(int dfd, const char *path, struct dirent ***result,           \
                     int (*f)(const struct dirent *),                              \
                     int (*c)(const struct dirent **, const struct dirent **))     \
    {                                                                              \
        struct sw_found found;                                                     \
        if (sw_path_find(dfd, &path, true, &found))                                \
            return scan_tree(&found, (void *)result, (filter_fn)f, (compare_fn)c); \
        return SW_REAL(name)(dfd, path, result, f, c);                             \
    }
HOOK_SCANDIRAT(scandirat, dirent)
HOOK_SCANDIRAT(scandirat64, dirent64)

/* libc's glob lists directories by itself unless it is given functions to do it with: these hooks.
 */
static void *glob_opendir(const char *path)
{
    return opendir(path);
}

static struct dirent *glob_readdir(void *dir)
{
    return readdir(dir);
}

static void glob_closedir(void *dir)
{
    closedir(dir);
}

static int glob_stat(const char *restrict path, struct stat *restrict out)
{
    return stat(path, out);
}

static int glob_lstat(const char *restrict path, struct stat *restrict out)
{
    return lstat(path, out);
}

/* Patterns may name the tree only by wildcards: all under its roots are looked at with our
 * functions. */
static bool globs_roots(const char *pattern, int flags, const void *result)
{
    return result && sw_probe_string(pattern, PATH_MAX) && !(flags & GLOB_ALTDIRFUNC) &&
           (!strncmp(pattern, "/sys/", 5) || !strncmp(pattern, "/dev/", 5));
}

static_assert(sizeof(glob_t) == sizeof(glob64_t), "64-bit systems have one glob_t");

static int glob_tree(const char *pattern, int flags, int (*on_error)(const char *, int),
                     glob_t *result)
{
    glob_t saved = *result;
    result->gl_opendir = glob_opendir;
    result->gl_readdir = glob_readdir;
    result->gl_closedir = glob_closedir;
    result->gl_stat = glob_stat;
    result->gl_lstat = glob_lstat;
    int status = SW_REAL(glob)(pattern, flags | GLOB_ALTDIRFUNC, on_error, result);
    result->gl_flags &= ~GLOB_ALTDIRFUNC;
    result->gl_opendir = saved.gl_opendir;
    result->gl_readdir = saved.gl_readdir;
    result->gl_closedir = saved.gl_closedir;
    result->gl_stat = saved.gl_stat;
    result->gl_lstat = saved.gl_lstat;
    return status;
}

SW_HOOK int glob(const char *pattern, int flags, int (*on_error)(const char *, int), glob_t *result)
{
    if (globs_roots(pattern, flags, result))
        return glob_tree(pattern, flags, on_error, result);
    return SW_REAL(glob)(pattern, flags, on_error, result);
}

SW_HOOK int glob64(const char *pattern, int flags, int (*on_error)(const char *, int),
                   glob64_t *result)
{
    if (globs_roots(pattern, flags, result))
        return glob_tree(pattern, flags, on_error, (glob_t *)result);
    return SW_REAL(glob64)(pattern, flags, on_error, result);
}
