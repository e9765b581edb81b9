/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the file of a medium is opened, locked and made. One writer has its lock (common/serve). A
 * second one that is to take over asks for it by a mark: a lock on a byte far behind the file's
 * end, which the first one looks at. Its mark goes with the process that asks. So nothing is left
 * behind by one that is killed, and block devices are the same as files.
 */
#ifndef SW_SNAPSHOT_FILE_H
#define SW_SNAPSHOT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "snapshot/core/medium.h"

struct snap_file_place {
    int fd;
    uint64_t bytes;
    bool is_direct;   /* past the system's cache */
    bool is_volatile; /* it lies in memory */
    bool is_new;      /* it begins with zeroes where superblocks are */
};

/* 0, or a negative errno and a sentence. */
int snap_file_place_open(const char *path, const struct snap_medium_options *options, char *error,
                         size_t error_bytes, struct snap_file_place *place);
/* Another writer asks for the lock. */
bool snap_file_is_asked_for(int fd);
/* Its file has no name any more, and is gone once it is closed. */
bool snap_file_place_is_deleted(const struct snap_file_place *place);
/* Lets go of the lock, also of copies of the descriptor that children have. */
void snap_file_place_close(struct snap_file_place *place, bool is_forked);

#endif
