/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What takes long of a volume, in a thread of its own: one thing at a time, so that a right is
 * given only after those before it are gone.
 */
#include "snapshot/server/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/minmax.h"
#include "common/serve/disk.h"
#include "common/serve/holes.h"
#include "common/serve/new_file.h"
#include "snapshot/server/volume.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { STEP_BYTES = 64 << 20, PAGE_BYTES = 4096, AGAIN_MS = 100 };

/* ---- its memory ---- */

/* Each page is there before the volume is promised. Where the kernel is too old to be asked, they
 * are written. */
static int get_pages(uint8_t *at, uint64_t bytes)
{
    if (!madvise(at, bytes, MADV_POPULATE_WRITE))
        return 0;
    if (errno != EINVAL)
        return errno == EAGAIN || errno == EFAULT ? -ENOMEM : -errno;
    for (uint64_t page = 0; page < bytes; page += PAGE_BYTES)
        *(volatile uint8_t *)(at + page) = 0;
    return 0;
}

/* Memory of a file without a name. A software device shares such pages with peers of this host as
 * they are. Private ones it would have to copy each time that they are registered: 256 MiB took
 * 0.4 s, and these 0.2 ms. MAP_FAILED and errno: there is none. */
static void *map_memory(uint64_t bytes)
{
    const int fd = memfd_create("volume", MFD_CLOEXEC);
    void *base = MAP_FAILED;
    if (fd >= 0 && !ftruncate(fd, (off_t)bytes))
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const int why = errno;
    if (fd >= 0)
        close(fd);
    errno = why;
    return base;
}

static bool is_to_end(struct snap_volume *volume)
{
    pthread_mutex_lock(&volume->lock);
    const bool is_over = volume->is_to_end;
    pthread_mutex_unlock(&volume->lock);
    return is_over;
}

static int make_in_memory(struct snap_volume *volume)
{
    void *base = map_memory(volume->bytes);
    int code = base == MAP_FAILED ? -errno : 0;
    for (uint64_t at = 0; !code && at < volume->bytes; at += STEP_BYTES)
        code = is_to_end(volume)
                   ? -ECANCELED
                   : get_pages((uint8_t *)base + at, mover_min_u64(STEP_BYTES, volume->bytes - at));
    if (code && base != MAP_FAILED)
        munmap(base, volume->bytes);
    if (!code)
        volume->base = base;
    volume->is_volatile = true;
    return code;
}

static int map_file(struct snap_volume *volume, char *error, size_t error_bytes)
{
    struct stat st;
    if (fstat(volume->fd, &st))
        return -errno;
    if (!S_ISREG(st.st_mode) || !st.st_size || st.st_size % PAGE_BYTES ||
        (uint64_t)st.st_size != volume->bytes) {
        snprintf(error, error_bytes, "%s is no volume, or has another size than before",
                 volume->path);
        return -EINVAL;
    }
    int code = mover_holes_fill_all(volume->fd, volume->path, false, error, error_bytes);
    volume->is_volatile = mover_disk_is_memory(volume->fd);
    if (!code)
        code = mover_disk_open(volume->fd, !volume->is_volatile, &volume->disk);
    if (code)
        return code;
    void *base = mmap(NULL, volume->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, volume->fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    volume->base = base;
    return 0;
}

static int make_in_file(struct snap_volume *volume, char *error, size_t error_bytes)
{
    const struct mover_serving how = {0};
    volume->fd = mover_new_file_open(volume->path, O_RDWR, volume->is_new ? volume->bytes : 0, &how,
                                     error, error_bytes);
    if (volume->fd < 0)
        return volume->fd;
    int code = volume->is_new ? mover_disk_sync_folder(volume->path) : 0;
    return code ? code : map_file(volume, error, error_bytes);
}

static void let_memory_go(struct snap_volume *volume)
{
    if (volume->base)
        munmap(volume->base, volume->bytes);
    mover_disk_close(&volume->disk);
    if (volume->path && volume->is_to_unlink)
        unlink(volume->path);
    if (volume->fd >= 0)
        close(volume->fd);
    volume->base = NULL;
    volume->fd = -1;
}

/* Under the lock, which it lets go meanwhile. */
static void keeper_make(struct snap_volume *volume)
{
    char error[512] = "";
    pthread_mutex_unlock(&volume->lock);
    const int code =
        volume->path ? make_in_file(volume, error, sizeof(error)) : make_in_memory(volume);
    pthread_mutex_lock(&volume->lock);
    volume->state = code ? SNAP_VOLUME_FAILED : SNAP_VOLUME_READY;
    volume->error = code;
    if (code)
        snprintf(volume->why, sizeof(volume->why), "%s", *error ? error : strerror(-code));
}

/* ---- rights ---- */

static struct snap_grant *grant_at(struct list_node *node)
{
    return LIST_MEMBER(node, struct snap_grant, node);
}

static struct snap_grant *find_over(const struct snap_volume *volume)
{
    for (struct list_node *at = list_first(&volume->grants); at;
         at = list_after(&volume->grants, at))
        if (grant_at(at)->is_over)
            return grant_at(at);
    return NULL;
}

static struct snap_grant *find_asked(const struct snap_volume *volume)
{
    for (struct list_node *at = list_first(&volume->grants); at;
         at = list_after(&volume->grants, at))
        if (grant_at(at)->state == SNAP_GRANT_ASKED)
            return grant_at(at);
    return NULL;
}

/* Whether anything of the volume is registered. */
static bool has_given(const struct snap_volume *volume)
{
    for (struct list_node *at = list_first(&volume->grants); at;
         at = list_after(&volume->grants, at))
        if (grant_at(at)->mr)
            return true;
    return false;
}

/*
 * Nobody has a right, so the memory may be replaced: what a peer stores late goes to the old one. A
 * part at a time, whose old pages are given back: it takes as much memory as one part. Where there
 * is not even that, it tries again. Under the lock, which it lets go meanwhile: a volume that is
 * doubtful is given to nobody.
 */
static void replace_memory(struct snap_volume *volume)
{
    pthread_mutex_unlock(&volume->lock);
    uint8_t *fresh = map_memory(volume->bytes), *old = volume->base;
    for (uint64_t at = 0; fresh != MAP_FAILED && at < volume->bytes;) {
        const uint64_t step = mover_min_u64(STEP_BYTES, volume->bytes - at);
        if (get_pages(fresh + at, step)) {
            poll(NULL, 0, AGAIN_MS);
            continue;
        }
        memcpy(fresh + at, old + at, step);
        madvise(old + at, step, MADV_REMOVE);
        at += step;
    }
    if (fresh != MAP_FAILED)
        munmap(old, volume->bytes);
    else
        poll(NULL, 0, AGAIN_MS);
    pthread_mutex_lock(&volume->lock);
    if (fresh == MAP_FAILED)
        return;
    volume->base = fresh;
    volume->is_doubtful = false;
}

static void take_right_back(struct snap_volume *volume, struct snap_grant *grant)
{
    list_remove(&grant->node);
    pthread_mutex_unlock(&volume->lock);
    const bool is_doubtful = grant->mr && grant->may_store_late;
    if (grant->mr)
        ibv_dereg_mr(grant->mr);
    ibv_dealloc_pd(grant->pd);
    free(grant);
    pthread_mutex_lock(&volume->lock);
    volume->is_doubtful |= is_doubtful && volume->fd < 0;
}

static void give_right(struct snap_volume *volume, struct snap_grant *grant)
{
    const int access = IBV_ACCESS_REMOTE_READ |
                       (grant->may_write ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0);
    pthread_mutex_unlock(&volume->lock);
    struct ibv_mr *mr = ibv_reg_mr(grant->pd, volume->base, volume->bytes, access);
    pthread_mutex_lock(&volume->lock);
    grant->mr = mr;
    grant->state = mr ? SNAP_GRANT_GIVEN : SNAP_GRANT_REFUSED;
}

/* ---- the disk ---- */

/* What a file without a name has is gone with the server: it is no flush that counts. */
static bool is_file_deleted(const struct snap_volume *volume)
{
    struct stat st;
    return volume->fd >= 0 && !fstat(volume->fd, &st) && !st.st_nlink;
}

static void keeper_flush(struct snap_volume *volume)
{
    const uint64_t asked = volume->flushes_asked;
    pthread_mutex_unlock(&volume->lock);
    int code = volume->fd >= 0 && msync(volume->base, volume->bytes, MS_SYNC) ? -errno : 0;
    if (!code && mover_disk_look(&volume->disk))
        code = -volume->disk.error;
    const bool is_deleted = !code && is_file_deleted(volume);
    pthread_mutex_lock(&volume->lock);
    if (code || is_deleted) {
        volume->state = SNAP_VOLUME_FAILED;
        volume->error = is_deleted ? -ENOENT : code;
        snprintf(volume->why, sizeof(volume->why), "%s%s",
                 is_deleted ? "its file was deleted" : "its disk has failed a write: ",
                 is_deleted ? "" : strerror(-code));
    }
    volume->flushes_done = asked;
}

/* False: there is nothing to do. */
static bool keeper_step(struct snap_volume *volume)
{
    struct snap_grant *over = find_over(volume);
    const bool may_give = volume->state == SNAP_VOLUME_READY && !volume->is_doubtful;
    struct snap_grant *asked = may_give ? find_asked(volume) : NULL;
    if (volume->state == SNAP_VOLUME_MAKING)
        keeper_make(volume);
    else if (over)
        take_right_back(volume, over);
    else if (volume->is_doubtful && volume->fd < 0 && !has_given(volume))
        replace_memory(volume);
    else if (asked)
        give_right(volume, asked);
    else if (volume->flushes_done != volume->flushes_asked)
        keeper_flush(volume);
    else
        return false;
    return true;
}

void *snap_keeper_run(void *context)
{
    struct snap_volume *volume = context;
    pthread_mutex_lock(&volume->lock);
    for (;;) {
        if (keeper_step(volume))
            continue;
        if (volume->is_to_end && list_is_empty(&volume->grants))
            break;
        volume->is_at_rest = true;
        pthread_cond_wait(&volume->change, &volume->lock);
        volume->is_at_rest = false;
    }
    pthread_mutex_unlock(&volume->lock);
    let_memory_go(volume);
    pthread_mutex_lock(&volume->lock);
    volume->state = SNAP_VOLUME_GONE;
    pthread_mutex_unlock(&volume->lock);
    return NULL;
}
