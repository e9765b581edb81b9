/* SPDX-License-Identifier: BSD-2-Clause */
/* What tells a process from all others that had its PID, or will have it. */
#ifndef SW_MOVERS_PROCESS_MARK_H
#define SW_MOVERS_PROCESS_MARK_H

#include <stdbool.h>
#include <stdint.h>

enum { MOVER_BOOT_ID_BYTES = 16 };

/* The kernel's boot ID: another one after each start. False, and all zeroes: it cannot be read. */
bool mover_boot_id(uint8_t id[MOVER_BOOT_ID_BYTES]);
/* When the process began, in clock ticks since the boot; PID 0 is this process. 0: there is none of
 * that PID. Source: proc(5), field 22 of /proc/PID/stat. */
uint64_t mover_process_start(int32_t pid);

#endif
