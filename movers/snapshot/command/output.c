/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/command/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/minmax.h"
#include "common/serve/disk.h"
#include "snapshot/store/superblock.h"

enum { PART_BYTES = 64 << 20 };

/* Also one that is damaged, or of another version. */
static bool is_volume(const char *path)
{
    static uint8_t block[SNAP_BLOCK_BYTES];
    struct snap_superblock superblock;
    bool is_one = false;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (off_t i = 0; fd >= 0 && !is_one && i < SNAP_SUPERBLOCKS; i++) {
        const bool is_read =
            pread(fd, block, sizeof(block), i * (off_t)sizeof(block)) == (ssize_t)sizeof(block);
        const enum snap_superblock_verdict verdict =
            is_read ? snap_superblock_decode(block, UINT64_MAX, &superblock)
                    : SNAP_SUPERBLOCK_EMPTY;
        is_one = verdict != SNAP_SUPERBLOCK_EMPTY && verdict != SNAP_SUPERBLOCK_FOREIGN;
    }
    if (fd >= 0)
        close(fd);
    return is_one;
}

/* It takes the place of what is there, and would do so with a device. */
static const char *why_not_replaced(const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return NULL;
    if (!S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? strerror(EISDIR) : "it is no file";
    return is_volume(path) ? "it is a volume of snapshots, and stays" : NULL;
}

/* What a symbolic link leads to gets the bytes; the link stays. */
static int output_find_place(const char *path, char **place)
{
    struct stat st;
    const bool is_link = !lstat(path, &st) && S_ISLNK(st.st_mode);
    *place = is_link ? realpath(path, NULL) : strdup(path);
    if (*place)
        return MOVER_DONE;
    return mover_fail("%s: %s%s", path, is_link ? "a symbolic link that leads nowhere: " : "",
                      strerror(errno));
}

/* Beside it. A name that is as long as names may be leaves no room for more. */
static int make_temporary(struct snap_output *output)
{
    static const char tail[] = ".XXXXXX";
    const char *slash = strrchr(output->path, '/'), *name = slash ? slash + 1 : output->path;
    const size_t most = (size_t)(name - output->path) + NAME_MAX + 1 - sizeof(tail);
    if (asprintf(&output->temporary, "%.*s%s", (int)mover_min_u64(most, PATH_MAX), output->path,
                 tail) < 0) {
        output->temporary = NULL;
        return -ENOMEM;
    }
    output->fd = mkostemp(output->temporary, O_CLOEXEC);
    return output->fd < 0 ? -errno : 0;
}

static void free_paths(struct snap_output *output)
{
    free(output->path);
    free(output->temporary);
    output->path = output->temporary = NULL;
}

static int output_begin(struct snap_output *output, const char *path)
{
    if (output_find_place(path, &output->path))
        return MOVER_FAILED;
    const char *why_not = why_not_replaced(path);
    if (why_not)
        return mover_fail("%s: %s", path, why_not);
    const int made = make_temporary(output);
    return made ? mover_fail("%s: %s", path, strerror(-made)) : MOVER_DONE;
}

int snap_output_open(struct snap_output *output, const char *path, uint64_t bytes)
{
    *output = (struct snap_output){.bytes = bytes, .fd = -1};
    if (output_begin(output, path)) {
        free_paths(output);
        return MOVER_FAILED;
    }
    /* Blocks of the disk now: a full disk found later would be a SIGBUS. */
    int code = bytes ? posix_fallocate(output->fd, 0, (off_t)bytes) : 0;
    if (!code && bytes) {
        output->data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, output->fd, 0);
        if (output->data == MAP_FAILED) {
            output->data = NULL;
            code = errno;
        }
    }
    if (!code)
        return MOVER_DONE;
    mover_fail("%s: %s", path, strerror(code));
    return snap_output_close(output, MOVER_FAILED);
}

/* The file gets its name, and is on the disk with it. */
static int give_name(const struct snap_output *output)
{
    const mode_t mask = umask(0);
    umask(mask);
    if (fchmod(output->fd, 0666 & ~mask) || fsync(output->fd) ||
        rename(output->temporary, output->path))
        return mover_fail("%s: %s", output->path, strerror(errno));
    const int code = mover_disk_sync_folder(output->path);
    return code ? mover_fail("%s: its folder could not be written to the disk: %s", output->path,
                             strerror(-code))
                : MOVER_DONE;
}

int snap_output_close(struct snap_output *output, int code)
{
    if (output->data)
        munmap(output->data, output->bytes);
    output->data = NULL;
    if (output->fd < 0)
        return code;
    if (!code)
        code = give_name(output);
    if (code)
        unlink(output->temporary);
    close(output->fd);
    output->fd = -1;
    free_paths(output);
    return code;
}

int snap_output_item(struct sw_snap_reader *reader, const struct sw_snap_item *item,
                     uint32_t number, uint8_t *into, struct mover_progress *progress)
{
    struct sw_snap_error error;
    for (uint64_t at = 0; at < item->bytes;) {
        const struct sw_snap_piece piece = {.number = number,
                                            .offset = at,
                                            .bytes = mover_min_u64(item->bytes - at, PART_BYTES),
                                            .into = into + at};
        if (sw_snap_read(reader, &piece, 1, &error))
            return mover_fail("%s", error.text);
        at += piece.bytes;
        mover_progress_at(progress, progress->done_bytes + piece.bytes);
    }
    return MOVER_DONE;
}

int snap_output_small(struct sw_snap_reader *reader, uint32_t rank, const char *path)
{
    struct sw_snap_error error;
    struct snap_output output;
    size_t length;
    if (sw_snap_small(reader, rank, NULL, 0, &length, &error))
        return mover_fail("%s", error.text);
    int code = snap_output_open(&output, path, length);
    if (code)
        return code;
    if (length && sw_snap_small(reader, rank, output.data, length, &length, &error))
        code = mover_fail("%s", error.text);
    return snap_output_close(&output, code);
}
