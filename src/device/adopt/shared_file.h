/* SPDX-License-Identifier: BSD-2-Clause */
/* Finding a descriptor for memory that the program already shares. */
#ifndef SW_DEVICE_ADOPT_SHARED_FILE_H
#define SW_DEVICE_ADOPT_SHARED_FILE_H

#include "device/adopt/vma.h"

/* Returns a descriptor, open for reading and writing, of the file that `vma` maps, which is regular
 * or device DAX; the caller owns it. -ENOENT if there is no way to one: another device, memory that
 * was unlinked and is not among our descriptors, rights. */
int sw_shared_file_open(const struct sw_vma *vma);

#endif
