/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The blocks that a file lacks. A mapping needs them all before it is served: a page that the file
 * system has no room for is a SIGBUS, not an error.
 */
#ifndef SW_MOVERS_HOLES_H
#define SW_MOVERS_HOLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Allocates all blocks of the file. Where it is plain that there is not enough room nothing is
 * taken: a call that fails may keep what it got. 0, or a negative errno: -EOPNOTSUPP where the file
 * system leaves that to the writer. `holes_bytes` says what there was to fill, at most. */
int mover_holes_fill(int fd, uint64_t *holes_bytes);
/* It is plain that the file system has no room for so much more. */
bool mover_holes_lack_room(int fd, uint64_t least_bytes);
/* Also there, block by block, by reads and writes: only where nobody else writes to the file. 0, or
 * a negative errno with a sentence in `error` that says what mends it. */
int mover_holes_fill_all(int fd, const char *path, bool is_shared, char *error, size_t error_bytes);

#endif
