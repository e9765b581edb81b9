/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files of which a write to the disk has failed, for as long as the process lives. What was written
 * to them by then may be lost, and the kernel does not tell that twice. The caller has a lock.
 */
#ifndef SW_DEVICE_MEMORY_FAILED_FILE_H
#define SW_DEVICE_MEMORY_FAILED_FILE_H

#include <stdbool.h>

#include "device/memory/persist.h"

/* Notes an error (negative errno) of msync(2), unless it says that the memory is not mapped. */
void sw_failed_file_note(const struct sw_persist_file *file, int rc);
/* The first error of the file, or 0. */
int sw_failed_file_error(const struct sw_persist_file *file);

#endif
