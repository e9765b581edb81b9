/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A driver that has pinned a page writes to that page wherever it is mapped by then: moving the
 * data of such a page elsewhere would lose what arrives later. No interface says whether a page is
 * pinned, so the means to pin are looked for.
 */
#include "device/adopt/pinned.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/dents.h"
#include "base/fds.h"
#include "device/adopt/keep.h"

static const char *const prefixes[] = {
    "anon_inode:[io_uring]",
    "anon_inode:[vfio",
    "anon_inode:kvm-v",
    "anon_inode:[infinibandevent]",
    "/dev/vfio/",
    "/dev/iommu",
    "/dev/infiniband/uverbs",
    "/dev/nvidia",
    "/dev/kfd",
    "/dev/dri/renderD",
};

bool sw_pinned_target(const char *target)
{
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        if (!strncmp(target, prefixes[i], strlen(prefixes[i])))
            return true;
    }
    return false;
}

/* Never looks at the file itself: that could ask a server, and wait. */
static bool entry_pins(int fds, const char *name)
{
    char target[64];
    if (!isdigit((unsigned char)*name))
        return false;
    /* Our own pin nothing, and are the most where there are many regions. */
    if (sw_fd_is_own(atoi(name)))
        return false;
    /* Past our own hook: it is asked about each descriptor, for each region. */
    const long len = syscall(SYS_readlinkat, fds, name, target, sizeof(target) - 1);
    if (len <= 0)
        return false;
    target[len] = '\0';
    return sw_pinned_target(target);
}

bool sw_pinned_possible(void)
{
    struct sw_dents fds;
    int fd = sw_keep_open(SW_KEEP_FDS);
    if (fd < 0)
        return true;
    sw_dents_use(&fds, fd);
    bool found = false;
    const char *name;
    while (!found && (name = sw_dents_next(&fds)))
        found = entry_pins(fds.fd, name);
    sw_keep_close(fd);
    return found;
}
