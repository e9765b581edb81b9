/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/serve/disk.h"
#include "common/serve/holes.h"
#include "nvme/target/backend/errand.h"

struct probe {
    struct nvt_errand errand; /* must be first */
    int answer;
    bool is_mapped, is_filled;
    char path[PATH_MAX];
};

static int flush_cache(int fd)
{
    return fsync(fd) && !mover_disk_is_refusal(errno) ? -errno : 0;
}

/* Its pages are the cache's: of a file system without O_DIRECT, too. */
static bool is_cached(const struct probe *probe)
{
    const int flags = O_RDONLY | O_DIRECT | O_NONBLOCK | O_CLOEXEC;
    const int fd = probe->is_mapped ? -1 : open(probe->path, flags);
    const bool lacks_direct = fd < 0 && errno == EINVAL;
    if (fd >= 0)
        close(fd);
    return probe->is_mapped || lacks_direct;
}

static int ask_disk_of(const struct probe *probe)
{
    uint64_t holes;
    const int flags = (probe->is_filled ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_CLOEXEC;
    const int fd = open(probe->path, flags);
    if (fd < 0)
        return 0;
    if (probe->is_filled && !flock(fd, LOCK_EX | LOCK_NB)) /* nobody serves it */
        (void)mover_holes_fill(fd, &holes);
    const int answer = is_cached(probe) ? flush_cache(fd) : 0;
    close(fd);
    return answer;
}

static void run_probe(struct nvt_errand *errand)
{
    struct probe *probe = (struct probe *)errand;
    probe->answer = ask_disk_of(probe);
}

static void drop_probe(struct nvt_errand *errand)
{
    free((struct probe *)errand);
}

int nvt_probe(const char *path, bool is_mapped, bool is_filled, uint32_t wait_ms)
{
    struct probe *probe = calloc(1, sizeof(*probe));
    if (!probe)
        return 0; /* not known */
    probe->errand = (struct nvt_errand){.work = run_probe, .drop = drop_probe};
    probe->is_mapped = is_mapped;
    probe->is_filled = is_filled;
    snprintf(probe->path, sizeof(probe->path), "%s", path);
    const int rc = nvt_errand_run(&probe->errand, wait_ms);
    if (rc == -ETIMEDOUT)
        return rc;
    const int answer = rc ? 0 : probe->answer;
    drop_probe(&probe->errand);
    return answer;
}
