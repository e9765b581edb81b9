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

void sw_failed_file_note(const struct sw_persist_file *file, int rc)
{
    if ((rc == -ENOMEM && !file->is_whole) || sw_failed_file_error(file) ||
        failed_count == FAILED_MAX)
        return;
    /* The last place, and a file that is not mapped any more, stand for all files. */
    const bool stands_for_all = failed_count == FAILED_MAX - 1 || !file->ino;
    failed[failed_count].file = stands_for_all ? (struct sw_persist_file){.is_whole = true} : *file;
    failed[failed_count++].rc = rc;
    sw_error("a file (inode %llu) could not be written to its disk: %s; what peers wrote to it may "
             "be lost, and each persistent FLUSH of it fails from now on: check the disk, then "
             "start this program again",
             (unsigned long long)file->ino, strerror(-rc));
}

bool sw_failed_file_any(void)
{
    return failed_count > 0;
}

int sw_failed_file_error(const struct sw_persist_file *file)
{
    for (unsigned i = 0; i < failed_count; i++)
        if (sw_persist_is_same_file(&failed[i].file, file))
            return failed[i].rc;
    return 0;
}
