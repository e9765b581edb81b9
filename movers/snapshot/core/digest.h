/* SPDX-License-Identifier: BSD-2-Clause */
/* SHA-256, by which superblocks, roots and leaves name what they point to. */
#ifndef SW_SNAPSHOT_DIGEST_H
#define SW_SNAPSHOT_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SNAP_DIGEST_BYTES = 32 };

void snap_digest_of(const void *data, size_t bytes, uint8_t digest[SNAP_DIGEST_BYTES]);
bool snap_digest_is(const void *data, size_t bytes, const uint8_t digest[SNAP_DIGEST_BYTES]);

#endif
