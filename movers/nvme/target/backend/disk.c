/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/disk.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nvme/types.h>

#include "common/serve/disk.h"
#include "common/serve/log.h"
#include "nvme/wire/fabrics.h"

struct nvt_disk {
    pthread_mutex_t lock; /* of `watched`: nobody is told that all is well while another looks */
    struct mover_disk watched;
    _Atomic int error;
    char nqn[224];
    uint32_t nsid;
};

int nvt_disk_open(int fd, bool serves_cache, struct nvt_disk **out)
{
    struct nvt_disk *disk = calloc(1, sizeof(*disk));
    if (!disk)
        return -ENOMEM;
    const int rc = mover_disk_open(fd, serves_cache, &disk->watched);
    if (rc) {
        free(disk);
        return rc;
    }
    pthread_mutex_init(&disk->lock, NULL);
    *out = disk;
    return 0;
}

void nvt_disk_close(struct nvt_disk *disk)
{
    if (!disk)
        return;
    mover_disk_close(&disk->watched);
    pthread_mutex_destroy(&disk->lock);
    free(disk);
}

void nvt_disk_name(struct nvt_disk *disk, const char *nqn, uint32_t nsid)
{
    snprintf(disk->nqn, sizeof(disk->nqn), "%s", nqn);
    disk->nsid = nsid;
}

static void tell_failed(const struct nvt_disk *disk)
{
    mover_log(MOVER_LOG_ERROR,
              "the disk of namespace %" PRIu32
              " of %s has failed a write: %s. What hosts wrote may "
              "be lost, so each flush of it fails from now on: check the disk, then remove the "
              "namespace and add it again; in a group, 'sidewire nvme target clear' does that",
              disk->nsid, disk->nqn, strerror(disk->error));
}

/* The kernel tells one flush of an error, and the next one finds clean pages. */
static void look_at_disk(struct nvt_disk *disk, int flush_error)
{
    pthread_mutex_lock(&disk->lock);
    if (!disk->error) {
        mover_disk_look(&disk->watched);
        disk->error = flush_error ? flush_error : disk->watched.error;
        if (disk->error)
            tell_failed(disk);
    }
    pthread_mutex_unlock(&disk->lock);
}

void nvt_disk_hear(struct nvt_disk *disk, int error)
{
    if (!disk)
        return;
    pthread_mutex_lock(&disk->lock);
    if (!error) {
        disk->watched.error = 0;
        (void)mover_disk_look(&disk->watched); /* or the next flush would be told of it */
        disk->error = disk->watched.error = 0;
    } else if (!disk->error) {
        disk->error = error;
        tell_failed(disk);
    }
    pthread_mutex_unlock(&disk->lock);
}

uint16_t nvt_disk_end_flush(struct nvt_disk *disk, enum nvt_io_kind kind, int result)
{
    /* A write may have failed before anything was to be flushed: then only this one has. */
    const bool is_flush = kind == NVT_FLUSH && result < 0 && !mover_disk_is_refusal(-result);
    look_at_disk(disk, is_flush ? -result : 0);
    if (disk->error)
        return NVF_MEDIA(NVME_SC_WRITE_FAULT);
    return result < 0 ? nvt_backend_status(-result, true) : 0;
}

int nvt_disk_error(const struct nvt_disk *disk)
{
    return disk ? disk->error : 0;
}
