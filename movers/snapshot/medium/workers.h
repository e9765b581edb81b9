/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that read, write and flush a file, where io_uring is refused. */
#ifndef SW_SNAPSHOT_WORKERS_H
#define SW_SNAPSHOT_WORKERS_H

#include <stdbool.h>

#include "snapshot/medium/ios.h"

struct snap_workers;

/* `event_fd` is written to for each io that ends. 0, or a negative errno. */
int snap_workers_open(int file_fd, int event_fd, struct snap_workers **workers);
/* Ends the threads, each after its io. A child of fork() has no threads. */
void snap_workers_close(struct snap_workers *workers, bool is_forked);
void snap_workers_add(struct snap_workers *workers, struct snap_io *io);
/* Adds those that have ended, with their results. */
void snap_workers_take(struct snap_workers *workers, struct snap_line *ended);

#endif
