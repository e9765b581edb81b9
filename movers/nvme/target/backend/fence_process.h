/* SPDX-License-Identifier: BSD-2-Clause */
/* Ends a process that serves what another one is to serve. */
#ifndef SW_MOVERS_NVME_FENCE_PROCESS_H
#define SW_MOVERS_NVME_FENCE_PROCESS_H

#include <stddef.h>

#include "nvme/target/backend/fence.h"

/* The file system a path is on, if processes of other hosts may write there: "NFS". NULL: they
 * cannot. */
const char *nvt_fence_network_name(const char *path);
/* SIGKILL for the process, unless it is not there any more: its PID may be another's by now. The
 * process is not waited for. Returns 0 or a negative errno and why. */
int nvt_fence_kill(const struct nvt_former *former, char *error, size_t error_bytes);
/* Waits until nobody has the file locked, and no write of a process that has ended is under way.
 * Returns 0, or -ETIMEDOUT and who has it. */
int nvt_fence_await_file(const char *path, uint32_t wait_ms, char *error, size_t error_bytes);

#endif
