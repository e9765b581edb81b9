/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a snapshot has, written into files. A file is made beside its name and renamed when all of
 * it is there: nobody meets half of one.
 */
#ifndef SW_MOVERS_SNAPSHOT_OUTPUT_H
#define SW_MOVERS_SNAPSHOT_OUTPUT_H

#include "common/command/progress.h"
#include "snapshot/command/command.h"

struct snap_output {
    char *path, *temporary; /* its own */
    int fd;
    uint8_t *data; /* the file, mapped */
    uint64_t bytes;
};

/* Makes a file of that many bytes, with blocks of the disk. Each says what went wrong, and returns
 * the exit status. */
int snap_output_open(struct snap_output *output, const char *path, uint64_t bytes);
/* Syncs it and gives it its name; or takes it away where `code` is not MOVER_DONE. Returns `code`,
 * or how that failed. */
int snap_output_close(struct snap_output *output, int code);
/* Reads an item as a whole into memory, in parts, with progress. */
int snap_output_item(struct sw_snap_reader *reader, const struct sw_snap_item *item,
                     uint32_t number, uint8_t *into, struct mover_progress *progress);
/* The small state of a rank into a file. */
int snap_output_small(struct sw_snap_reader *reader, uint32_t rank, const char *path);

#endif
