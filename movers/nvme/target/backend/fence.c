/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/fence.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "nvme/target/backend/device_key.h"
#include "nvme/target/backend/fence_device.h"
#include "nvme/target/backend/fence_process.h"
#include "nvme/target/backend/owed.h"

/* Numbers of devices change when a machine starts again; the file system's own ID does not. */
static int fence_identify_file(const char *path, const struct stat *st, char *out, char *error,
                               size_t error_bytes)
{
    struct statfs fs;
    uint32_t id[2];
    if (statfs(path, &fs)) {
        snprintf(error, error_bytes, "%.200s: %s", path, strerror(errno));
        return -errno;
    }
    static_assert(sizeof(fs.f_fsid) == sizeof(id), "two words");
    memcpy(id, &fs.f_fsid, sizeof(id));
    snprintf(out, NVT_MEDIUM_BYTES, "file %08x%08x %llu", id[0], id[1],
             (unsigned long long)st->st_ino);
    return 0;
}

int nvt_fence_look_at_file(const struct nvt_backend_spec *spec, struct nvt_backend_look *out,
                           char *error, size_t error_bytes)
{
    enum { LARGE = 4096, SMALL = 512 };
    struct stat st;
    const char *network = nvt_fence_network_name(spec->path);
    const int rc = stat(spec->path, &st) ? -errno : S_ISREG(st.st_mode) ? 0 : -EINVAL;
    if (rc) {
        snprintf(error, error_bytes, "%.200s: %s; 'truncate -s SIZE' makes a file", spec->path,
                 rc == -EINVAL ? "is no file" : strerror(-rc));
        return rc;
    }
    if (network) {
        snprintf(error, error_bytes,
                 "%.150s: lies on a file system of several hosts (%s), where a target that was cut "
                 "off could go on writing, and nothing here stops it: no group can serve it. Use a "
                 "local file system, or rbd:",
                 spec->path, network);
        return -EOPNOTSUPP;
    }
    const int owed = spec->kind == NVT_BACKEND_TIER /* whose log it is, it looks itself */
                         ? 0
                         : nvt_owed_refuse_path(spec->path, error, error_bytes);
    if (owed)
        return owed;
    const uint64_t bytes = (uint64_t)st.st_size;
    out->block_bytes = spec->block_bytes ? spec->block_bytes : bytes % LARGE ? SMALL : LARGE;
    out->size_bytes = bytes - bytes % out->block_bytes;
    return fence_identify_file(spec->path, &st, out->medium, error, error_bytes);
}

int nvt_fence_look(const struct nvt_backend_spec *spec, struct nvt_backend_look *out, char *error,
                   size_t error_bytes)
{
    *out = (struct nvt_backend_look){0};
    if (spec->shared || spec->read_only) {
        snprintf(error, error_bytes,
                 "leave %s away: one target of a group at a time has the namespace, and writes",
                 spec->shared ? "shared" : "ro");
        return -EINVAL;
    }
    switch (spec->kind) {
    case NVT_BACKEND_FILE:
    case NVT_BACKEND_NVRAM:
        return nvt_fence_look_at_file(spec, out, error, error_bytes);
    case NVT_BACKEND_RAM:
    case NVT_BACKEND_NULL:
        snprintf(error, error_bytes,
                 "%s: is memory of one target, which no other one reaches: no group can serve it",
                 nvt_backend_kind_name(spec->kind));
        return -EOPNOTSUPP;
    case NVT_BACKEND_BLOCK:
    case NVT_BACKEND_NVME:
    case NVT_BACKEND_RBD:
    case NVT_BACKEND_TIER:
    case NVT_BACKEND_PATH:
        break;
    }
    const struct nvt_backend_ops *ops = nvt_backend_find(nvt_backend_kind_name(spec->kind));
    const struct nvt_backend_setup setup = nvt_backend_setup_of(spec, NULL);
    if (ops && ops->look && (ops->fence || ops->await_rest || nvt_spec_is_device(spec)))
        return ops->look(&setup, out, error, error_bytes);
    snprintf(error, error_bytes,
             "%s: nothing here fences a target that was cut off from it: no group can serve it",
             nvt_backend_kind_name(spec->kind));
    return -EOPNOTSUPP;
}

int nvt_fence_look_again(const struct nvt_backend_spec *spec, const char *medium, char *error,
                         size_t error_bytes)
{
    struct nvt_backend_look look;
    if (spec->kind != NVT_BACKEND_FILE && spec->kind != NVT_BACKEND_NVRAM &&
        spec->kind != NVT_BACKEND_TIER)
        return 0;
    const int rc = nvt_fence_look(spec, &look, error, error_bytes);
    if (rc || !strcmp(look.medium, medium))
        return rc;
    snprintf(error, error_bytes,
             "%.200s is another file than the group has, and lacks what hosts have written: bring "
             "that one back",
             spec->path);
    return -ESTALE;
}

int nvt_fence_open_device(const struct nvt_backend_spec *spec, struct nvt_device *device)
{
    *device = (struct nvt_device){.path = spec->path,
                                  .fd = open(spec->path, O_RDWR | O_CLOEXEC),
                                  .key = spec->reserve_key,
                                  .idle_key = spec->idle_key};
    return device->fd < 0 ? -errno : 0;
}

/* Processes of this host have let go of the device. */
static int fence_device(const struct nvt_backend_spec *spec, const struct nvt_former *formers,
                        size_t count, char *error, size_t error_bytes)
{
    struct nvt_device device;
    uint64_t *keys = calloc(count + 1, sizeof(*keys));
    int rc = keys ? nvt_fence_open_device(spec, &device) : -ENOMEM;
    for (size_t i = 0; !rc && i < count; i++)
        keys[i] = formers[i].key;
    if (rc) {
        snprintf(error, error_bytes, "%.150s: %s", spec->path, strerror(-rc));
    } else {
        rc = nvt_device_reserve(&device, keys, count, error, error_bytes);
        close(device.fd);
    }
    free(keys);
    return rc;
}

int nvt_fence(const struct nvt_backend_spec *spec, const struct nvt_former *formers, size_t count,
              uint32_t wait_ms, char *error, size_t error_bytes)
{
    const struct nvt_backend_ops *ops = nvt_backend_find(nvt_backend_kind_name(spec->kind));
    if (spec->unfenced) /* a test shows what happens then */
        return 0;
    struct nvt_backend_setup setup = nvt_backend_setup_of(spec, NULL);
    setup.wait_ms = wait_ms;
    if (ops && ops->fence)
        return ops->fence(&setup, error, error_bytes);
    for (size_t i = 0; i < count; i++) {
        const int rc = nvt_fence_kill(&formers[i], error, error_bytes);
        if (rc)
            return rc;
    }
    int rc = nvt_fence_await_file(spec->path, wait_ms, error, error_bytes);
    if (!rc && ops && ops->await_rest)
        rc = ops->await_rest(&setup, error, error_bytes);
    if (rc || !nvt_spec_is_device(spec) || !spec->reserve_key)
        return rc;
    return fence_device(spec, formers, count, error, error_bytes);
}

void nvt_fence_undo(const struct nvt_backend_spec *spec)
{
    struct nvt_device device;
    if (!nvt_spec_is_device(spec) || !spec->reserve_key || nvt_fence_open_device(spec, &device))
        return;
    nvt_device_leave(&device);
    close(device.fd);
}
