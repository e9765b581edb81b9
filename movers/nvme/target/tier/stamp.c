/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/tier/stamp.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/time/units.h"
#include "nvme/target/tier/inside.h"

enum { WANTED = STATX_BASIC_STATS | STATX_BTIME };

struct nvt_tier_looker {
    struct mover_ring_op op; /* must be first */
    int fd;
    bool is_synced;
    struct nvt_uring *uring;
    struct nvt_tier *tier;
    struct statx found;
};

static void take_stamp(int fd, const struct statx *found, struct nvt_tier_stamp *stamp)
{
    const bool is_block = S_ISBLK(found->stx_mode);
    *stamp = (struct nvt_tier_stamp){.size_bytes = found->stx_size};
    if (is_block) {
        put_le32(stamp->identity, found->stx_rdev_major);
        put_le32(stamp->identity + 4, found->stx_rdev_minor);
        (void)ioctl(fd, BLKGETSIZE64, &stamp->size_bytes);
        return;
    }
    put_le64(stamp->identity, found->stx_ino);
    if (found->stx_mask & STATX_BTIME) /* a file that takes another one's place, and its number */
        put_le64(stamp->identity + 8,
                 (uint64_t)found->stx_btime.tv_sec * NS_PER_S + found->stx_btime.tv_nsec);
    stamp->mtime_ns = found->stx_mtime.tv_sec * (int64_t)NS_PER_S + found->stx_mtime.tv_nsec;
}

int nvt_tier_stamp_now(int fd, struct nvt_tier_stamp *stamp)
{
    struct statx found;
    if (statx(fd, "", AT_EMPTY_PATH, WANTED, &found))
        return -errno;
    take_stamp(fd, &found, stamp);
    return 0;
}

struct nvt_tier_looker *nvt_tier_looker_open(int fd)
{
    struct nvt_tier_looker *looker = calloc(1, sizeof(*looker));
    if (looker)
        looker->fd = fd;
    return looker;
}

void nvt_tier_looker_close(struct nvt_tier_looker *looker)
{
    free(looker);
}

static void looker_goes_on(struct mover_ring_op *op, int result);

/* A time that is in memory alone would be an older one after a cut of the power. */
static void send_look(struct nvt_tier_looker *looker)
{
    looker->op.complete = looker_goes_on;
    struct io_uring_sqe *sqe = nvt_uring_entry(looker->uring, &looker->op);
    if (looker->is_synced)
        io_uring_prep_statx(sqe, looker->fd, "", AT_EMPTY_PATH, WANTED, &looker->found);
    else
        io_uring_prep_fsync(sqe, looker->fd, 0);
}

static void looker_goes_on(struct mover_ring_op *op, int result)
{
    struct nvt_tier_looker *looker = (struct nvt_tier_looker *)op;
    struct nvt_tier_stamp stamp = {0};
    struct nvt_tier_turn turn;
    if (result >= 0 && !looker->is_synced) {
        looker->is_synced = true;
        return send_look(looker);
    }
    if (result >= 0)
        take_stamp(looker->fd, &looker->found, &stamp);
    nvt_tier_enter(looker->tier, &turn, looker->uring);
    nvt_tier_stamped(looker->tier, &stamp, result < 0 ? -result : 0);
    nvt_tier_leave(looker->tier);
}

void nvt_tier_look(struct nvt_tier_looker *looker, struct nvt_tier *tier)
{
    looker->tier = tier;
    looker->uring = tier->turn->uring;
    looker->is_synced = false;
    send_look(looker);
}
