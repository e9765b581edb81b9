/* SPDX-License-Identifier: BSD-2-Clause */
/* The kinds of media. Each gets what follows its "KIND:". */
#ifndef SW_SNAPSHOT_KINDS_H
#define SW_SNAPSHOT_KINDS_H

#include <stddef.h>

#include "snapshot/core/medium.h"

typedef int snap_kind_open(const char *rest, const struct snap_medium_options *options, char *error,
                           size_t error_bytes, struct snap_medium **medium);

snap_kind_open snap_file_open, snap_nvme_open, snap_peer_open, snap_pmem_open;

#endif
