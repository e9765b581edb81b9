/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads, writes and flushes of a file that do not block their caller: by io_uring, or by threads
 * where it is refused, as in containers. A call is the io itself. Short ones go on where they
 * ended.
 */
#ifndef SW_SNAPSHOT_CALLS_H
#define SW_SNAPSHOT_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "snapshot/core/medium.h"

struct snap_calls;

/* So many are under way at most: io_uring has that many entries. */
enum { SNAP_CALLS_MAX = 64 };

/* `may_wait`: the file's writes would wait in the call itself, so they go to workers at once.
 * `by_threads`: without io_uring. 0, or a negative errno. */
int snap_calls_open(int file_fd, bool may_wait, bool by_threads, struct snap_calls **calls);
/* None may be under way, but in a child of fork(). */
void snap_calls_close(struct snap_calls *calls, bool is_forked);
bool snap_calls_are_threads(const struct snap_calls *calls);
/* Readable when a call has ended, once snap_calls_arm() said true. */
int snap_calls_fd(const struct snap_calls *calls);
bool snap_calls_arm(struct snap_calls *calls);
uint32_t snap_calls_under_way(const struct snap_calls *calls);
/* There is room for one. */
bool snap_calls_have_room(const struct snap_calls *calls);
void snap_calls_begin(struct snap_calls *calls, struct snap_io *io);
/* Begins what waits; one that has ended, and its result: 0 or a negative errno. NULL: none. */
struct snap_io *snap_calls_take(struct snap_calls *calls, int *result);

#endif
