/* SPDX-License-Identifier: BSD-2-Clause */
/* What a block device is, for a group of targets: its own name, which each host sees. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "nvme/target/backend/device_key.h"
#include "nvme/target/config/spec.h"

/* The line of a file of sysfs, as a word: names have no blanks that would be missed. */
static bool read_attribute(dev_t device, const char *name, char *out, size_t size)
{
    char path[128];
    snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", major(device), minor(device), name);
    FILE *file = fopen(path, "re");
    const bool has = file && fgets(out, (int)size, file);
    if (file)
        fclose(file);
    if (!has)
        return false;
    size_t kept = 0;
    for (const char *at = out; *at; at++)
        if (*at > ' ' && *at <= '~')
            out[kept++] = *at;
    out[kept] = 0;
    return kept > 0;
}

/* NVMe, SCSI, and device mapper (multipath). */
static bool name_device(dev_t device, char name[NVT_MEDIUM_BYTES - 8])
{
    static const char *const attributes[] = {"wwid", "device/wwid", "dm/uuid"};
    for (size_t i = 0; i < sizeof(attributes) / sizeof(*attributes); i++)
        if (read_attribute(device, attributes[i], name, NVT_MEDIUM_BYTES - 8))
            return true;
    return false;
}

static int look_at_device(int fd, const struct nvt_backend_setup *setup,
                          struct nvt_backend_look *out, char *error, size_t error_bytes)
{
    enum { LARGE = 4096 };
    struct stat st;
    char name[NVT_MEDIUM_BYTES - 8];
    uint64_t size;
    int sector;
    if (fstat(fd, &st))
        return -errno;
    if (!S_ISBLK(st.st_mode)) {
        snprintf(error, error_bytes, "%.150s: is no block device", setup->path);
        return -ENOTBLK;
    }
    if (read_attribute(st.st_rdev, "partition", name, sizeof(name))) {
        snprintf(error, error_bytes,
                 "%.150s: is a partition, and a reservation is of the whole disk: no group can "
                 "serve it",
                 setup->path);
        return -EOPNOTSUPP;
    }
    if (ioctl(fd, BLKGETSIZE64, &size) || ioctl(fd, BLKSSZGET, &sector))
        return -errno;
    const int rc =
        nvt_device_may_reserve(fd, setup->path, setup->spec->is_for_all, error, error_bytes);
    if (rc)
        return rc;
    if (!name_device(st.st_rdev, name)) {
        snprintf(error, error_bytes,
                 "%.150s: has no name of its own (wwid), so nobody can tell whether it is the same "
                 "at all members: no group can serve it",
                 setup->path);
        return -EOPNOTSUPP;
    }
    out->block_bytes = setup->block_bytes;
    if (!out->block_bytes)
        out->block_bytes = size % LARGE ? (uint32_t)sector : LARGE;
    out->size_bytes = size - size % out->block_bytes;
    snprintf(out->medium, sizeof(out->medium), "block %s", name);
    return 0;
}

int nvt_block_look(const struct nvt_backend_setup *setup, struct nvt_backend_look *out, char *error,
                   size_t error_bytes)
{
    const int fd = open(setup->path, O_RDWR | O_CLOEXEC);
    *error = 0;
    const int rc = fd < 0 ? -errno : look_at_device(fd, setup, out, error, error_bytes);
    if (rc && !*error)
        snprintf(error, error_bytes, "%.150s: %s", setup->path, strerror(-rc));
    if (fd >= 0)
        close(fd);
    return rc;
}
