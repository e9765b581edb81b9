/* SPDX-License-Identifier: BSD-2-Clause */
/* How much memory this process may still take. */
#ifndef SW_DEVICE_ADOPT_MEMORY_ROOM_H
#define SW_DEVICE_ADOPT_MEMORY_ROOM_H

#include <stdint.h>

#define SW_MEMORY_ROOM_UNKNOWN UINT64_MAX

/* The least of what the machine has available and what each limit of the memory cgroup and its
 * ancestors leaves, not counting the page cache; version 1 and 2. UNKNOWN if not even the first can
 * be read. Allocates nothing; with the move lock held. */
uint64_t sw_memory_room(void);

#ifdef SW_TEST_HOOKS
extern const char *sw_memory_room_root; /* what stands before /proc and /sys */
#endif

#endif
