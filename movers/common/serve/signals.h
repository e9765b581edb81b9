/* SPDX-License-Identifier: BSD-2-Clause */
/* The signals that end a server, or have it read its configuration again, as a descriptor. */
#ifndef SW_MOVERS_SIGNALS_H
#define SW_MOVERS_SIGNALS_H

#include <stdbool.h>
#include <stddef.h>

/* SIGINT and SIGTERM, and SIGHUP where it `reloads`, no longer end the process: they make the
 * descriptor readable. Before other threads start, which block what their maker blocks. Returns the
 * descriptor, which does not block, or a negative errno and what is wrong: then signals do what
 * they did before. */
int mover_signals_open(bool reloads, char *error, size_t error_bytes);
/* The number of the next signal, or 0: none has come. */
int mover_signals_take(int fd);

#endif
