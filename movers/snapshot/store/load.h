/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads a snapshot of a volume into a table. Blocks. */
#ifndef SW_SNAPSHOT_LOAD_H
#define SW_SNAPSHOT_LOAD_H

#include "snapshot/store/table.h"
#include "snapshot/store/task.h"

/* The bytes of a blob, to be freed by free(). 0; -EBADMSG: they have another SHA-256, or could not
 * be read; -ENOMEM; or why the medium is of no use any more. */
int snap_load_blob(struct snap_tasks *tasks, const struct snap_blob *blob, uint8_t **bytes);

/* Damaged leaves are is_damaged; has_index and has_small say whether these are whole. -EBADMSG and
 * why: the root is damaged. */
int snap_load_table(struct snap_tasks *tasks, const struct snap_entry *entry,
                    uint64_t volume_blocks, struct snap_table *table, const char **why);

#endif
