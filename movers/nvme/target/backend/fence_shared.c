/* SPDX-License-Identifier: BSD-2-Clause */
/* The fence of files and devices that all members of a group have open at once. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/serve/served.h"
#include "common/time/clock.h"
#include "nvme/target/backend/device_key.h"
#include "nvme/target/backend/fence.h"
#include "nvme/target/backend/fence_device.h"
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

static int await_processes(const struct nvt_backend_spec *spec, uint64_t own,
                           const struct nvt_former *formers, size_t count, uint64_t end_ns,
                           char *error, size_t error_bytes)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < count; i++)
        if (formers[i].process != own)
            rc = await_process(spec, &formers[i], end_ns, error, error_bytes);
    return rc;
}

/* Also where there is no former: a member that is shut out itself serves no host any more. */
static int shut_out_formers(const struct nvt_backend_spec *spec, uint64_t own,
                            const struct nvt_former *formers, size_t count, char *error,
                            size_t error_bytes)
{
    struct nvt_device device;
    size_t others = 0;
    if (!spec->reserve_key) /* a test shows what happens then */
        return 0;
    uint64_t *keys = calloc(count + 1, sizeof(*keys));
    int rc = keys ? nvt_fence_open_device(spec, &device) : -ENOMEM;
    if (rc) {
        snprintf(error, error_bytes, "%.150s: %s", spec->path, strerror(-rc));
    } else {
        for (size_t i = 0; i < count; i++)
            if (formers[i].process != own)
                keys[others++] = formers[i].key;
        rc = nvt_device_fence(&device, keys, others, error, error_bytes);
        close(device.fd);
    }
    free(keys);
    return rc;
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
        rc = nvt_spec_is_device(specs[s])
                 ? shut_out_formers(specs[s], own, formers, count, error, error_bytes)
                 : await_processes(specs[s], own, formers, count, end_ns, error, error_bytes);
    return rc;
}

int nvt_fence_shares(const struct nvt_backend_spec *spec, char *error, size_t error_bytes)
{
    if (spec->kind == NVT_BACKEND_FILE || nvt_spec_is_device(spec))
        return 0;
    const char *why = spec->kind == NVT_BACKEND_RBD
                          ? "its lock is for one client alone, which others would break"
                          : "what it has in memory is one member's alone";
    snprintf(error, error_bytes,
             "%s: %s: serve a file or a device by several active members, or leave --active all "
             "away",
             nvt_backend_kind_name(spec->kind), why);
    return -EOPNOTSUPP;
}
