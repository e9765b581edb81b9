/* SPDX-License-Identifier: BSD-2-Clause */
/* The fence of files that all members of a group have open at once. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/serve/served.h"
#include "common/time/clock.h"
#include "nvme/target/backend/fence.h"
#include "nvme/target/backend/fence_process.h"

enum { LOOK_AGAIN_US = 2000 };

static int await_process(const struct nvt_backend_spec *spec, const struct nvt_former *former,
                         uint64_t end_ns, char *error, size_t error_bytes)
{
    const int fd = open(spec->path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        const int rc = -errno;
        snprintf(error, error_bytes, "%.150s: %s", spec->path, strerror(-rc));
        return rc;
    }
    bool has_it = mover_served_has_process(fd, former->process);
    while (has_it && mover_now_ns() < end_ns) {
        usleep(LOOK_AGAIN_US);
        has_it = mover_served_has_process(fd, former->process);
    }
    close(fd);
    if (has_it)
        snprintf(error, error_bytes,
                 "%.150s: writes of member %.31s, which has ended or cannot be seen here, are "
                 "still under way: its disk hangs, or it runs in another container",
                 spec->path, former->name);
    return has_it ? -ETIMEDOUT : 0;
}

int nvt_fence_shared(const struct nvt_backend_spec *const *specs, size_t spec_count, uint64_t own,
                     const struct nvt_former *formers, size_t count, uint32_t wait_ms, char *error,
                     size_t error_bytes)
{
    const uint64_t end_ns = mover_now_ns() + wait_ms * NS_PER_MS;
    int rc = 0;
    for (size_t i = 0; !rc && i < count; i++)
        if (formers[i].process != own)
            rc = nvt_fence_kill(&formers[i], error, error_bytes);
    for (size_t s = 0; !rc && s < spec_count; s++)
        for (size_t i = 0; !rc && i < count; i++)
            if (formers[i].process != own)
                rc = await_process(specs[s], &formers[i], end_ns, error, error_bytes);
    return rc;
}

int nvt_fence_shares(const struct nvt_backend_spec *spec, char *error, size_t error_bytes)
{
    if (spec->kind == NVT_BACKEND_FILE)
        return 0;
    const char *why = spec->kind == NVT_BACKEND_RBD
                          ? "its lock is for one client alone, which others would break"
                      : spec->kind == NVT_BACKEND_BLOCK || spec->kind == NVT_BACKEND_NVME
                          ? "the reservation of the device is for one member alone here"
                          : "what it has in memory is one member's alone";
    snprintf(error, error_bytes,
             "%s: %s: serve a file by several active members, or leave --active all away",
             nvt_backend_kind_name(spec->kind), why);
    return -EOPNOTSUPP;
}
