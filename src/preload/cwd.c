/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of the calls that change the working directory and tell it. */
#include "preload/cwd.h"

#include <errno.h>

#include "base/lock.h"
#include "preload/node.h"
#include "preload/real.h"

bool sw_path_cwd_is_ours;

static struct sw_lock lock; /* of: */
static char where[SW_TREE_PATH_MAX];

bool sw_cwd_get(char out[SW_TREE_PATH_MAX])
{
    if (!__atomic_load_n(&sw_path_cwd_is_ours, __ATOMIC_ACQUIRE))
        return false;
    sw_lock_acquire(&lock);
    memcpy(out, where, sizeof(where));
    sw_lock_release(&lock);
    return true;
}

static void set_cwd(const char *path)
{
    sw_lock_acquire(&lock);
    if (path)
        memcpy(where, path, strlen(path) + 1);
    __atomic_store_n(&sw_path_cwd_is_ours, path != NULL, __ATOMIC_RELEASE);
    sw_lock_release(&lock);
}

static void shorten_path(char *path)
{
    char *slash = strrchr(path, '/');
    slash[slash == path] = '\0';
}

static bool is_dir(const struct sw_found *found)
{
    enum sw_tree_kind kind = sw_node_kind(&found->node);
    return kind == SW_TREE_DIR || kind == SW_TREE_SHARED_DIR;
}

static int enter_dir(const struct sw_found *found)
{
    char park[SW_TREE_PATH_MAX];
    if (found->error || !is_dir(found)) {
        errno = found->error ? found->error : ENOTDIR;
        return -1;
    }
    int saved_errno = errno;
    memcpy(park, found->path, sizeof(park));
    while (SW_REAL(chdir)(park)) {
        if (!park[1])
            return -1;
        shorten_path(park);
    }
    errno = saved_errno;
    set_cwd(found->path);
    return 0;
}

SW_HOOK int chdir(const char *path)
{
    struct sw_found found;
    if (sw_path_find(AT_FDCWD, &path, true, &found))
        return enter_dir(&found);
    int rc = SW_REAL(chdir)(path);
    if (!rc)
        set_cwd(NULL);
    return rc;
}

SW_HOOK int fchdir(int fd)
{
    struct sw_found found;
    if (sw_node_of_fd(fd, NULL, &found))
        return enter_dir(&found);
    int rc = SW_REAL(fchdir)(fd);
    if (!rc)
        set_cwd(NULL);
    return rc;
}

SW_HOOK char *getcwd(char *out, size_t len)
{
    char ours[SW_TREE_PATH_MAX];
    if (!sw_cwd_get(ours))
        return SW_REAL(getcwd)(out, len);
    size_t need = strlen(ours) + 1;
    if (len ? len < need : out != NULL) {
        errno = len ? ERANGE : EINVAL;
        return NULL;
    }
    char *own = out ? NULL : malloc(len ? len : need);
    if (own)
        return memcpy(own, ours, need);
    return out && !sw_node_store(out, ours, need) ? out : NULL;
}

SW_HOOK char *__getcwd_chk(char *out, size_t len, size_t out_len)
{
    char ours[SW_TREE_PATH_MAX];
    return len <= out_len && sw_cwd_get(ours) ? getcwd(out, len)
                                              : SW_REAL(__getcwd_chk)(out, len, out_len);
}

SW_HOOK char *get_current_dir_name(void)
{
    char ours[SW_TREE_PATH_MAX];
    return sw_cwd_get(ours) ? strdup(ours) : SW_REAL(get_current_dir_name)();
}

/* After the libc functions were found. */
__attribute__((constructor(103))) static void take_over(void)
{
    const char *path = getenv("PWD");
    struct sw_found found;
    char park[SW_TREE_PATH_MAX], now[SW_TREE_PATH_MAX];
    if (!path || *path != '/' || !sw_path_find(AT_FDCWD, &path, true, &found) || found.error ||
        !is_dir(&found) || !SW_REAL(getcwd)(now, sizeof(now)))
        return;
    memcpy(park, found.path, sizeof(park));
    while (SW_REAL(access)(park, F_OK) && park[1])
        shorten_path(park);
    if (!strcmp(park, now))
        set_cwd(found.path);
}
