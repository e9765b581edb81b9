/* SPDX-License-Identifier: BSD-2-Clause */
/* A file that is served, and is made where there is none. */
#ifndef SW_MOVERS_NEW_FILE_H
#define SW_MOVERS_NEW_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "common/serve/served.h"

/* mover_served_open() of a file that gets `create_bytes`, with all blocks, where it is not there or
 * is empty; with 0 it does not. Where several servers are to make it, one does, and the others meet
 * its lock. Where there is no room, none is left. */
int mover_new_file_open(const char *path, int flags, uint64_t create_bytes,
                        const struct mover_serving *how, char *error, size_t error_bytes);

#endif
