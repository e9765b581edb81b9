/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_SNAPSHOT_TYPE_H
#define SW_SNAPSHOT_TYPE_H

#include <stdint.h>

/* Bytes of an element of a type as safetensors calls it; 0: there is none of that name. */
uint32_t snap_type_bytes(const char *type);

#endif
