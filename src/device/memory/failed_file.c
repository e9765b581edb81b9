/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/memory/failed_file.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"

#define FAILED_MAX 64

static struct {
    struct sw_persist_file file;
    int rc;
} failed[FAILED_MAX];
static unsigned failed_count;

static bool is_file_noted(const struct sw_persist_file *file)
{
    for (unsigned i = 0; i < failed_count; i++)
        if (failed[i].file.ino == file->ino && failed[i].file.dev_major == file->dev_major &&
            failed[i].file.dev_minor == file->dev_minor)
            return true;
    return false;
}

void sw_failed_file_note(const struct sw_persist_file *file, int rc)
{
    if ((rc == -ENOMEM && !file->is_whole) || is_file_noted(file) || failed_count == FAILED_MAX)
        return;
    const bool is_last = failed_count == FAILED_MAX - 1; /* stands for all files */
    failed[failed_count].file = is_last ? (struct sw_persist_file){0} : *file;
    failed[failed_count++].rc = rc;
    sw_error("a file (inode %llu) could not be written to its disk: %s; what peers wrote to it may "
             "be lost, and each persistent FLUSH of it fails from now on: check the disk, then "
             "start this program again",
             (unsigned long long)file->ino, strerror(-rc));
}

int sw_failed_file_error(const struct sw_persist_file *file)
{
    for (unsigned i = 0; i < failed_count; i++)
        if (sw_persist_is_same_file(&failed[i].file, file))
            return failed[i].rc;
    return 0;
}
