/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/dents.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

int sw_dents_open(struct sw_dents *dents, const char *path)
{
    /* Raw: libc's name may be a hook that allocates. */
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    sw_dents_use(dents, fd);
    return fd < 0 ? -errno : 0;
}

void sw_dents_use(struct sw_dents *dents, int fd)
{
    dents->fd = fd;
    dents->begin = dents->end = 0;
}

const char *sw_dents_next(struct sw_dents *dents)
{
    if (dents->begin == dents->end) {
        dents->begin = 0;
        dents->end = syscall(SYS_getdents64, dents->fd, dents->bytes, sizeof(dents->bytes));
        if (dents->end <= 0) {
            dents->end = 0;
            return NULL;
        }
    }
    const struct dirent64 *entry = (const void *)(dents->bytes + dents->begin);
    dents->begin += entry->d_reclen;
    return entry->d_name;
}

void sw_dents_close(struct sw_dents *dents)
{
    close(dents->fd);
}
