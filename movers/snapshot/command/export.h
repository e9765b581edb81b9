/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_MOVERS_SNAPSHOT_EXPORT_H
#define SW_MOVERS_SNAPSHOT_EXPORT_H

#include "common/command/progress.h"
#include "sidewire/snapshot.h"

#define SNAP_ALL_RANKS UINT32_MAX

/* Writes the chosen snapshot as safetensors: the items of a rank as they are, or those of all
 * ranks, where parts of a tensor are put together. Says what went wrong; returns the exit
 * status. */
int snap_export_file(struct sw_snap_reader *reader, const struct sw_snap_entry *entry,
                     uint32_t rank, const char *path, struct mover_progress *progress);

#endif
