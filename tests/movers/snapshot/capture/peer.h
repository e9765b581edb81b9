/* SPDX-License-Identifier: BSD-2-Clause */
/* A writer that is another process: it writes to the region by RDMA WRITE. */
#ifndef SW_TESTS_SNAPSHOT_PEER_H
#define SW_TESTS_SNAPSHOT_PEER_H

#include "writers.h"

struct peer;

/* Forks, before this process has threads. */
struct peer *peer_start(struct writers *all, struct writer *writer);
/* Registers the region, and tells the peer where it is. NULL: there is no RDMA device. */
const char *peer_let_in(struct peer *peer);
/* After the writers have been told to end. */
void peer_end(struct peer *peer);

#endif
