/* SPDX-License-Identifier: BSD-2-Clause */
#include "ceph_double.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <rados/librados.h>
#include <rbd/librbd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#pragma GCC visibility push(default)

struct ceph_double ceph_double;

static int thing; /* stands for a cluster, a pool and an image */

/* librados is a library of its own with the same functions: the state is that of librbd. */
static struct ceph_double *double_state(void)
{
    return dlsym(dlopen("librbd.so.1", RTLD_NOW), "ceph_double");
}

/* ---- librados ---- */

int rados_create(rados_t *cluster, const char *const id)
{
    *cluster = &thing;
    return id && !strcmp(id, "stranger") ? -EINVAL : 0;
}

int rados_conf_read_file(rados_t cluster, const char *path)
{
    (void)cluster;
    return path && access(path, R_OK) ? -ENOENT : 0;
}

/* NULL: the option has no double. */
static int *pool_of(const char *option)
{
    if (!strcmp(option, "librados_thread_count"))
        return &double_state()->pools[0];
    return !strcmp(option, "ms_async_op_threads") ? &double_state()->pools[1] : NULL;
}

int rados_conf_get(rados_t cluster, const char *option, char *out, size_t len)
{
    (void)cluster;
    const int *pool = pool_of(option);
    if (!pool)
        return -ENOENT;
    snprintf(out, len, "%d", *pool);
    return 0;
}

int rados_conf_set(rados_t cluster, const char *option, const char *value)
{
    (void)cluster;
    int *pool = pool_of(option);
    if (pool)
        *pool = atoi(value);
    return *option && *value ? 0 : -EINVAL;
}

int rados_connect(rados_t cluster)
{
    (void)cluster;
    while (double_state()->is_stuck)
        usleep(1000);
    return double_state()->connect;
}

void rados_shutdown(rados_t cluster)
{
    (void)cluster;
}

int rados_cluster_fsid(rados_t cluster, char *out, size_t len)
{
    (void)cluster;
    return snprintf(out, len, "fsid");
}

int rados_ioctx_create(rados_t cluster, const char *pool, rados_ioctx_t *out)
{
    (void)cluster;
    *out = &thing;
    return strcmp(pool, "pool") != 0 ? -ENOENT : 0;
}

void rados_ioctx_set_namespace(rados_ioctx_t pool, const char *space)
{
    (void)pool;
    (void)space;
}

int64_t rados_ioctx_get_id(rados_ioctx_t pool)
{
    (void)pool;
    return 7;
}

void rados_ioctx_destroy(rados_ioctx_t pool)
{
    (void)pool;
}

int rados_mon_command(rados_t cluster, const char **commands, size_t count, const char *in,
                      size_t in_len, char **out, size_t *out_len, char **text, size_t *text_len)
{
    (void)cluster;
    (void)in;
    (void)in_len;
    (void)out;
    (void)out_len;
    (void)text;
    (void)text_len;
    struct ceph_double *state = double_state();
    snprintf(state->command, sizeof(state->command), "%s", commands[0]);
    return count == 1 ? 0 : -EINVAL;
}

/* ---- images ---- */

int rbd_open(rados_ioctx_t pool, const char *name, rbd_image_t *out, const char *snap)
{
    (void)pool;
    (void)snap;
    if (strcmp(name, "image") != 0)
        return -ENOENT;
    ceph_double.open++;
    *out = &thing;
    return 0;
}

int rbd_open_read_only(rados_ioctx_t pool, const char *name, rbd_image_t *out, const char *snap)
{
    return rbd_open(pool, name, out, snap);
}

int rbd_close(rbd_image_t image)
{
    (void)image;
    while (ceph_double.ending)
        usleep(1000);
    ceph_double.open--;
    return 0;
}

int rbd_get_id(rbd_image_t image, char *id, size_t len)
{
    (void)image;
    return snprintf(id, len, "1f") < 0;
}

int rbd_get_size(rbd_image_t image, uint64_t *size)
{
    (void)image;
    *size = ceph_double.size;
    return 0;
}

int rbd_get_features(rbd_image_t image, uint64_t *features)
{
    (void)image;
    *features = ceph_double.features;
    return 0;
}

int rbd_config_image_list(rbd_image_t image, rbd_config_option_t *options, int *count)
{
    static char name[] = "rbd_cache", value[8];
    (void)image;
    snprintf(value, sizeof(value), "%s", ceph_double.cache);
    options[0] = (rbd_config_option_t){.name = name, .value = value};
    *count = 1;
    return 0;
}

void rbd_config_image_list_cleanup(rbd_config_option_t *options, int count)
{
    (void)options;
    (void)count;
}

int rbd_snap_set(rbd_image_t image, const char *snap)
{
    (void)image;
    return strcmp(snap, "snap") != 0 ? -ENOENT : 0;
}

int rbd_snap_get_id(rbd_image_t image, const char *snap, uint64_t *id)
{
    (void)image;
    (void)snap;
    *id = 4;
    return 0;
}

int rbd_update_watch(rbd_image_t image, uint64_t *handle, rbd_update_callback_t changed, void *arg)
{
    (void)image;
    *handle = 1;
    ceph_double.changed_arg = arg;
    ceph_double.changed = changed;
    return 0;
}

int rbd_update_unwatch(rbd_image_t image, uint64_t handle)
{
    (void)image;
    (void)handle;
    return 0;
}

/* ---- the lock ---- */

int rbd_lock_acquire(rbd_image_t image, rbd_lock_mode_t mode)
{
    (void)image;
    (void)mode;
    return *ceph_double.owner ? -EROFS : 0;
}

int rbd_lock_get_owners(rbd_image_t image, rbd_lock_mode_t *mode, char **owners, size_t *count)
{
    (void)image;
    if (!*ceph_double.owner)
        return -ENOENT;
    *mode = RBD_LOCK_MODE_EXCLUSIVE;
    *count = 1;
    owners[0] = strdup(ceph_double.owner);
    return 0;
}

void rbd_lock_get_owners_cleanup(char **owners, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(owners[i]);
}

int rbd_lock_break(rbd_image_t image, rbd_lock_mode_t mode, const char *owner)
{
    (void)image;
    (void)mode;
    if (strcmp(owner, ceph_double.owner) != 0)
        return -EBUSY;
    *ceph_double.owner = '\0';
    ceph_double.broken++;
    return 0;
}

/* ---- I/O, which ends in a thread of its own ---- */

struct completion {
    rbd_callback_t ended;
    void *arg;
    ssize_t result;
};

static void *end_completion(void *arg)
{
    struct completion *completion = arg;
    while (ceph_double.holds)
        usleep(1000);
    if (ceph_double.result)
        completion->result = ceph_double.result;
    completion->ended(completion, completion->arg);
    ceph_double.ending--;
    return NULL;
}

static int begin_completion(rbd_completion_t c, uint64_t off, uint64_t len, ssize_t result)
{
    struct completion *completion = c;
    pthread_t thread;
    ceph_double.calls++;
    if (off > DOUBLE_BYTES || len > DOUBLE_BYTES - off)
        return -EINVAL;
    completion->result = result;
    ceph_double.ending++;
    return -pthread_create(&thread, NULL, end_completion, completion) || -pthread_detach(thread);
}

int rbd_aio_create_completion(void *arg, rbd_callback_t ended, rbd_completion_t *out)
{
    struct completion *completion = malloc(sizeof(*completion));
    *completion = (struct completion){.ended = ended, .arg = arg};
    *out = completion;
    return 0;
}

ssize_t rbd_aio_get_return_value(rbd_completion_t completion)
{
    return ((struct completion *)completion)->result;
}

void rbd_aio_release(rbd_completion_t completion)
{
    free(completion);
}

int rbd_aio_read(rbd_image_t image, uint64_t off, size_t len, char *data, rbd_completion_t c)
{
    (void)image;
    if (off <= DOUBLE_BYTES && len <= DOUBLE_BYTES - off)
        memcpy(data, ceph_double.bytes + off, len);
    return begin_completion(c, off, len, (ssize_t)len);
}

int rbd_aio_write(rbd_image_t image, uint64_t off, size_t len, const char *data, rbd_completion_t c)
{
    (void)image;
    if (off <= DOUBLE_BYTES && len <= DOUBLE_BYTES - off)
        memcpy(ceph_double.bytes + off, data, len);
    return begin_completion(c, off, len, 0);
}

int rbd_aio_flush(rbd_image_t image, rbd_completion_t c)
{
    (void)image;
    return begin_completion(c, 0, 0, 0);
}

int rbd_aio_discard(rbd_image_t image, uint64_t off, uint64_t len, rbd_completion_t c)
{
    (void)image;
    return begin_completion(c, off, len, 0);
}

int rbd_aio_write_zeroes(rbd_image_t image, uint64_t off, size_t len, rbd_completion_t c,
                         int zero_flags, int op_flags)
{
    (void)image;
    (void)zero_flags;
    (void)op_flags;
    if (off <= DOUBLE_BYTES && len <= DOUBLE_BYTES - off)
        memset(ceph_double.bytes + off, 0, len);
    return begin_completion(c, off, len, 0);
}
