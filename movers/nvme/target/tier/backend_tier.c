/* SPDX-License-Identifier: BSD-2-Clause */
/* `tier:FILE,log=...`: opens FILE as `file:` or `block:` would, the copies of the log, and the tier
 * of them. */
#include "nvme/target/tier/backend_tier.h"
#include "common/serve/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nvme/target/backend/backends.h"
#include "nvme/target/backend/owed.h"
#include "nvme/target/config/spec.h"
#include "nvme/target/tier/medium.h"
#include "nvme/target/tier/stamp.h"

struct tiered {
    struct nvt_backend backend; /* must be first */
    struct nvt_backend *file;
    struct nvt_tier *tier;
    int fd; /* of FILE, for its stamp */
    bool is_shared;
    struct nvt_tier_looker *looker;
    uint32_t logs_count;
    char logs[NVT_SPEC_LOGS][NVT_SPEC_LOG_MAX];
};

static int open_below(struct tiered *tiered, const struct nvt_backend_setup *setup, char *error,
                      size_t error_size)
{
    struct stat stat;
    tiered->fd = open(setup->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (tiered->fd < 0 || fstat(tiered->fd, &stat)) {
        snprintf(error, error_size, "%s cannot be opened: %s", setup->path, strerror(errno));
        return -errno;
    }
    const struct nvt_backend_ops *ops = S_ISBLK(stat.st_mode) ? &nvt_block : &nvt_file;
    const int rc = ops->open(setup, &tiered->file, error, error_size);
    if (rc)
        return rc;
    const struct nvt_backend *file = tiered->file;
    tiered->backend = (struct nvt_backend){.ops = &nvt_tiered,
                                           .size_bytes = file->size_bytes,
                                           .block_bytes = file->block_bytes,
                                           .can_deallocate = file->can_deallocate,
                                           .frees_to_zeroes = file->frees_to_zeroes,
                                           .claim = file->claim,
                                           .disk = file->disk,
                                           .watched = file->watched};
    return 0;
}

/* One of several that is not there may be lost: the quorum decides. */
static bool may_be_away(const struct tiered *tiered, int rc)
{
    return tiered->logs_count > 1 && (rc == -ENOENT || rc == -ENODEV || rc == -ENXIO || rc == -EIO);
}

static int open_log_copy(struct tiered *tiered, uint32_t i, struct nvt_tier_medium **medium,
                         char *error, size_t error_size)
{
    if (nvt_tier_is_pmem(tiered->logs[i]))
        return nvt_tier_pmem_open(tiered->logs[i], medium, error, error_size);
    const int rc =
        nvt_tier_file_open(tiered->logs[i], tiered->is_shared, medium, error, error_size);
    if (!may_be_away(tiered, rc))
        return rc;
    mover_log(MOVER_LOG_WARNING, "tier: %s. It begins without it, if it can", error);
    *error = 0;
    return 0;
}

static int open_media(struct tiered *tiered, struct nvt_tier_medium **media, char *error,
                      size_t error_size)
{
    int rc = 0;
    for (uint32_t i = 0; i < tiered->logs_count && !rc; i++)
        rc = open_log_copy(tiered, i, &media[i], error, error_size);
    for (uint32_t i = 0; i < tiered->logs_count && rc; i++)
        if (media[i])
            media[i]->ops->close(media[i]);
    return rc;
}

static void look_at_tiered(struct nvt_tier *tier)
{
    nvt_tier_look(((struct tiered *)tier->owner)->looker, tier);
}

/* What the mark of FILE says of the log. */
static void name_logs(const struct tiered *tiered, struct nvt_owed *owed)
{
    size_t at = 0;
    *owed->logs = '\0';
    for (uint32_t i = 0; i < tiered->logs_count && at < sizeof(owed->logs); i++)
        at += (size_t)snprintf(owed->logs + at, sizeof(owed->logs) - at, "%slog=%s", i ? "," : "",
                               tiered->logs[i]);
}

/* Before the log has any write. A block device has no mark (owed.h). */
static int mark_file(struct tiered *tiered, const char *path, const struct nvt_owed *now,
                     char *error, size_t error_size)
{
    struct nvt_owed owed;
    memcpy(owed.identity, tiered->tier->super.identity, sizeof(owed.identity));
    if (now && !memcmp(now->identity, owed.identity, sizeof(owed.identity)))
        return 0;
    name_logs(tiered, &owed);
    const int rc = nvt_owed_mark(tiered->fd, &owed);
    if (!rc || rc == -EOPNOTSUPP)
        return 0;
    snprintf(error, error_size, "%s cannot be marked as a file that a log has writes for: %s", path,
             strerror(-rc));
    return rc;
}

static int open_tier(struct tiered *tiered, const struct nvt_backend_setup *setup, char *error,
                     size_t error_size)
{
    struct nvt_tier_medium *media[NVT_SPEC_LOGS] = {0};
    const char *names[NVT_SPEC_LOGS];
    struct nvt_owed owed;
    const int is_marked = nvt_owed_read(setup->path, &owed);
    if (is_marked < 0)
        return is_marked;
    tiered->is_shared = setup->spec->unfenced;
    tiered->logs_count = setup->spec->log_count;
    memcpy(tiered->logs, setup->spec->logs, sizeof(tiered->logs));
    for (uint32_t i = 0; i < tiered->logs_count; i++)
        names[i] = tiered->logs[i];
    struct nvt_tier_setup of = {.file = tiered->file,
                                .uring = setup->uring,
                                .media = media,
                                .names = names,
                                .copies_count = setup->spec->log_count,
                                .cache_bytes = setup->spec->ram_bytes,
                                .makes_anew = setup->spec->makes_log,
                                .hands_over = setup->spec->hands_over,
                                .drops_damaged = setup->spec->drops_damaged,
                                .owed = is_marked ? &owed : NULL,
                                .look = look_at_tiered,
                                .owner = tiered};
    int rc = nvt_tier_stamp_now(tiered->fd, &of.stamp);
    if (!rc && getrandom(of.identity, sizeof(of.identity), 0) != sizeof(of.identity))
        rc = -EIO;
    if (!rc && !(tiered->looker = nvt_tier_looker_open(tiered->fd)))
        rc = -ENOMEM;
    if (!rc)
        rc = open_media(tiered, media, error, error_size);
    if (!rc)
        rc = nvt_tier_open(&of, &tiered->tier, error, error_size);
    if (rc)
        return rc;
    tiered->backend.lost = &tiered->tier->lost;
    return mark_file(tiered, setup->path, of.owed, error, error_size);
}

static void close_tiered(struct nvt_backend *backend)
{
    struct tiered *tiered = (struct tiered *)backend;
    if (tiered->tier && tiered->tier->is_whole)
        (void)nvt_owed_clear(tiered->fd); /* one that stays is gone after the next start */
    if (tiered->tier)
        nvt_tier_close(tiered->tier);
    if (tiered->file)
        tiered->file->ops->close(tiered->file);
    if (tiered->fd >= 0)
        close(tiered->fd);
    nvt_tier_looker_close(tiered->looker);
    free(tiered);
}

static int open_tiered(const struct nvt_backend_setup *setup, struct nvt_backend **out, char *error,
                       size_t error_size)
{
    *error = 0;
    if (setup->is_read_only || setup->spec->shared) {
        snprintf(error, error_size,
                 "tier: writes to its file and its log alone: leave ro and "
                 "shared away");
        return -EINVAL;
    }
    struct tiered *tiered = calloc(1, sizeof(*tiered));
    if (!tiered)
        return -ENOMEM;
    tiered->fd = -1;
    int rc = open_below(tiered, setup, error, error_size);
    if (!rc)
        rc = open_tier(tiered, setup, error, error_size);
    if (rc) {
        close_tiered(&tiered->backend);
        return rc;
    }
    *out = &tiered->backend;
    return 0;
}

static void submit_tiered(struct nvt_backend *backend, struct nvt_io *io)
{
    nvt_tier_submit(((struct tiered *)backend)->tier, io);
}

static void leave_tiered(struct nvt_backend *backend, struct nvt_io *io)
{
    nvt_tier_detach(((struct tiered *)backend)->tier, io);
}

static bool is_tiered_ready(struct nvt_backend *backend)
{
    return nvt_tier_is_ready(((struct tiered *)backend)->tier);
}

bool nvt_tiered_status(const struct nvt_backend *backend, struct nvt_tier_status *status)
{
    if (backend->ops != &nvt_tiered)
        return false;
    nvt_tier_status_of(((const struct tiered *)backend)->tier, status);
    return true;
}

const struct nvt_backend_ops nvt_tiered = {.kind = "tier",
                                           .open = open_tiered,
                                           .close = close_tiered,
                                           .leave = leave_tiered,
                                           .is_ready = is_tiered_ready,
                                           .look = nvt_tier_look_at,
                                           .await_rest = nvt_tier_await_logs,
                                           .submit = submit_tiered};
