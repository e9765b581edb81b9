/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/server/volume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/serve/thread.h"
#include "snapshot/core/medium.h"
#include "snapshot/server/keeper.h"

enum { SUPERBLOCKS_BYTES = 2 * SNAP_BLOCK_BYTES };

struct snap_volume *snap_volume_make(const char *name, uint64_t bytes, const char *path,
                                     bool is_new)
{
    struct snap_volume *volume = calloc(1, sizeof(*volume));
    if (!volume)
        return NULL;
    snprintf(volume->name, sizeof(volume->name), "%s", name);
    volume->bytes = bytes;
    volume->is_new = is_new;
    volume->fd = -1;
    volume->path = path ? strdup(path) : NULL;
    list_init(&volume->grants);
    pthread_mutex_init(&volume->lock, NULL);
    pthread_cond_init(&volume->change, NULL);
    const bool is_drawn = getrandom(volume->identity, sizeof(volume->identity), 0) ==
                          (ssize_t)sizeof(volume->identity);
    const int code = (path && !volume->path) || !is_drawn
                         ? ENOMEM
                         : mover_thread_start(&volume->thread, snap_keeper_run, volume);
    if (!code)
        return volume;
    free(volume->path);
    free(volume);
    errno = code;
    return NULL;
}

struct snap_volume_look snap_volume_look(struct snap_volume *volume)
{
    pthread_mutex_lock(&volume->lock);
    const struct snap_volume_look look = {.state = volume->state,
                                          .is_doubtful = volume->is_doubtful,
                                          .has_grants = !list_is_empty(&volume->grants),
                                          .flushes_done = volume->flushes_done};
    pthread_mutex_unlock(&volume->lock);
    return look;
}

struct snap_grant *snap_volume_ask(struct snap_volume *volume, struct ibv_pd *pd, bool may_write)
{
    struct snap_grant *grant = calloc(1, sizeof(*grant));
    if (!grant)
        return NULL;
    grant->pd = pd;
    grant->may_write = may_write;
    pthread_mutex_lock(&volume->lock);
    list_append(&volume->grants, &grant->node);
    pthread_cond_signal(&volume->change);
    pthread_mutex_unlock(&volume->lock);
    return grant;
}

enum snap_grant_state snap_grant_state_of(struct snap_volume *volume,
                                          const struct snap_grant *grant)
{
    pthread_mutex_lock(&volume->lock);
    const enum snap_grant_state state = grant->state;
    pthread_mutex_unlock(&volume->lock);
    return state;
}

void snap_grant_end(struct snap_volume *volume, struct snap_grant *grant, bool may_store_late)
{
    pthread_mutex_lock(&volume->lock);
    grant->is_over = true;
    grant->may_store_late = may_store_late;
    pthread_cond_signal(&volume->change);
    pthread_mutex_unlock(&volume->lock);
}

void snap_volume_doubt(struct snap_volume *volume)
{
    pthread_mutex_lock(&volume->lock);
    volume->is_doubtful = true;
    pthread_mutex_unlock(&volume->lock);
}

uint64_t snap_volume_flush(struct snap_volume *volume)
{
    pthread_mutex_lock(&volume->lock);
    const uint64_t ticket = ++volume->flushes_asked;
    pthread_cond_signal(&volume->change);
    pthread_mutex_unlock(&volume->lock);
    return ticket;
}

bool snap_volume_is_blank(const struct snap_volume *volume)
{
    static const uint8_t zeroes[SUPERBLOCKS_BYTES];
    uint8_t block[SNAP_BLOCK_BYTES];
    if (volume->bytes < SUPERBLOCKS_BYTES)
        return true;
    if (volume->fd < 0)
        return !memcmp(volume->base, zeroes, sizeof(zeroes));
    for (off_t at = 0; at < SUPERBLOCKS_BYTES; at += SNAP_BLOCK_BYTES)
        if (pread(volume->fd, block, sizeof(block), at) != (ssize_t)sizeof(block) ||
            memcmp(block, zeroes, sizeof(block)) != 0)
            return false;
    return true;
}

enum snap_volume_content snap_volume_content_of(struct snap_volume *volume)
{
    enum snap_volume_content content = SNAP_VOLUME_BUSY;
    pthread_mutex_lock(&volume->lock);
    if (volume->is_at_rest && list_is_empty(&volume->grants))
        content = snap_volume_is_blank(volume) ? SNAP_VOLUME_BLANK : SNAP_VOLUME_WRITTEN;
    pthread_mutex_unlock(&volume->lock);
    return content;
}

void snap_volume_end(struct snap_volume *volume, bool is_to_unlink)
{
    pthread_mutex_lock(&volume->lock);
    volume->is_to_end = true;
    volume->is_to_unlink = is_to_unlink;
    pthread_cond_signal(&volume->change);
    pthread_mutex_unlock(&volume->lock);
}

void snap_volume_free(struct snap_volume *volume)
{
    pthread_join(volume->thread, NULL);
    pthread_mutex_destroy(&volume->lock);
    pthread_cond_destroy(&volume->change);
    free(volume->path);
    free(volume);
}
