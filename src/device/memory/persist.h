/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether memory outlives a loss of power, and what makes stores to it do so. docs/persistence.md
 * has the table.
 */
#ifndef SW_DEVICE_MEMORY_PERSIST_H
#define SW_DEVICE_MEMORY_PERSIST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum sw_persist {
    SW_PERSIST_NONE,    /* it does not: DRAM, tmpfs, private mappings */
    SW_PERSIST_BY_SYNC, /* msync(2): a shared mapping of a file that is kept */
    SW_PERSIST_BY_CPU, /* writing back cache lines: persistent memory, mapped MAP_SYNC or device DAX
                        */
};

/* Of the whole range as it is mapped now; an empty one is BY_SYNC. */
enum sw_persist sw_persist_of(uint64_t va, uint64_t len_bytes);

/* Makes a range persistent by msync(2), all whole pages of it. 0 or a negative errno. */
int sw_persist_sync(uint64_t va, uint64_t len_bytes);

/* Parts of the above. Whether /proc/self/mountinfo has a filesystem on this device that keeps what
 * is synced, though it is on no block device. */
bool sw_persist_mount_keeps(FILE *mountinfo, unsigned int dev_major, unsigned int dev_minor);
/* Whether /proc/self/smaps says of the mapping that begins at `va` that it is MAP_SYNC. */
bool sw_persist_is_map_sync(FILE *smaps, uint64_t va);

#endif
