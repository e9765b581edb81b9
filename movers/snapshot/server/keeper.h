/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_SNAPSHOT_KEEPER_H
#define SW_SNAPSHOT_KEEPER_H

/* The thread of a struct snap_volume: until it is to end, and nobody has a right on it. */
void *snap_keeper_run(void *volume);

#endif
