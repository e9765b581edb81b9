/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/mappable.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define SYSFS_TARGET 512 /* bytes of what a link there leads to, at most */

static bool is_of_dax(dev_t number)
{
    char path[64], target[SYSFS_TARGET];
    snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/subsystem", major(number), minor(number));
    const ssize_t len = readlink(path, target, sizeof(target) - 1);
    target[len > 0 ? len : 0] = '\0';
    const char *last = strrchr(target, '/');
    return last && !strcmp(last, "/dax");
}

uint64_t sw_dax_device_bytes(dev_t number)
{
    char path[64];
    uint64_t bytes = 0;
    if (!is_of_dax(number))
        return 0;
    snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/size", major(number), minor(number));
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (fscanf(file, "%" SCNu64, &bytes) != 1)
        bytes = 0;
    fclose(file);
    return bytes;
}

bool sw_mappable_bytes(const struct stat *st, uint64_t *bytes)
{
    *bytes = 0;
    if (S_ISREG(st->st_mode))
        *bytes = (uint64_t)st->st_size;
    else if (S_ISCHR(st->st_mode))
        *bytes = sw_dax_device_bytes(st->st_rdev);
    return S_ISREG(st->st_mode) || *bytes;
}
