/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/adopt/shared_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/dents.h"
#include "base/mappable.h"

static bool is_file_of(const struct stat *st, const struct sw_vma *vma)
{
    uint64_t bytes;
    return st->st_ino == vma->ino && major(st->st_dev) == vma->dev_major &&
           minor(st->st_dev) == vma->dev_minor && sw_mappable_bytes(st, &bytes);
}

/* Whether a descriptor is of the file, by what is known of it without asking a server. */
static bool entry_is_file_of(int fds, const char *name, const struct sw_vma *vma)
{
    struct statx st;
    return isdigit((unsigned char)*name) &&
           !statx(fds, name, AT_STATX_DONT_SYNC, STATX_INO | STATX_TYPE, &st) &&
           st.stx_ino == vma->ino && st.stx_dev_major == vma->dev_major &&
           st.stx_dev_minor == vma->dev_minor &&
           (S_ISREG(st.stx_mode) ||
            (S_ISCHR(st.stx_mode) &&
             sw_dax_device_bytes(makedev(st.stx_rdev_major, st.stx_rdev_minor)) != 0));
}

/* Opens a name of the file anew, for writing too. Never waits, and opens nothing but the very file.
 */
static int open_checked(const char *path, const struct sw_vma *vma)
{
    struct stat st;
    if (stat(path, &st) || !is_file_of(&st, vma))
        return -1;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && (fstat(fd, &st) || !is_file_of(&st, vma))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Anew where that is allowed: the program's lock (flock) is of the open file, and would last until
 * the last peer lets go of it, be that stopped. */
static int open_own(int own, const struct sw_vma *vma)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", own);
    const int fd = open_checked(path, vma);
    const int flags = fd < 0 ? fcntl(own, F_GETFL) : -1;
    return flags >= 0 && (flags & O_ACCMODE) == O_RDWR ? fcntl(own, F_DUPFD_CLOEXEC, 0) : fd;
}

static int open_among_own(const struct sw_vma *vma)
{
    struct sw_dents fds;
    if (sw_dents_open(&fds, "/proc/self/fd"))
        return -1;
    int found = -1;
    const char *name;
    while (found < 0 && (name = sw_dents_next(&fds))) {
        if (entry_is_file_of(fds.fd, name, vma))
            found = open_own(atoi(name), vma);
    }
    sw_dents_close(&fds);
    return found;
}

static int open_by_name(const struct sw_vma *vma)
{
    struct sw_vma_reader reader;
    struct sw_vma again;
    int fd = -1;
    if (sw_vma_open(&reader, false))
        return -1;
    if (sw_vma_next(&reader, vma->start, &again) == 1 && reader.name[0] == '/')
        fd = open_checked(reader.name, vma);
    sw_vma_close(&reader);
    return fd;
}

/* Needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN; also finds what has no name, as
 * MAP_SHARED|MAP_ANONYMOUS and shmget(2). */
static int open_mapped(const struct sw_vma *vma)
{
    char path[96];
    snprintf(path, sizeof(path), "/proc/self/map_files/%" PRIx64 "-%" PRIx64, vma->start, vma->end);
    return open_checked(path, vma);
}

int sw_shared_file_open(const struct sw_vma *vma)
{
    int fd = open_among_own(vma);
    if (fd < 0)
        fd = open_by_name(vma);
    if (fd < 0)
        fd = open_mapped(vma);
    return fd < 0 ? -ENOENT : fd;
}
