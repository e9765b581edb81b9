/* SPDX-License-Identifier: BSD-2-Clause */
/* Files whose pages another process can map: regular ones, and device DAX (/dev/dax*). */
#ifndef SW_BASE_MAPPABLE_H
#define SW_BASE_MAPPABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* Bytes of the device DAX with this number, as sysfs has them. 0: there is none, or sysfs is not
 * mounted. */
uint64_t sw_dax_device_bytes(dev_t number);

/* Whether it is a file of these kinds, and how many bytes it has. */
bool sw_mappable_bytes(const struct stat *st, uint64_t *bytes);

#endif
