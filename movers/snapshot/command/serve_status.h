/* SPDX-License-Identifier: BSD-2-Clause */
/* What a server holds and has counted, for its control socket. */
#ifndef SW_SNAPSHOT_SERVE_STATUS_H
#define SW_SNAPSHOT_SERVE_STATUS_H

#include "common/serve/metrics.h"
#include "snapshot/server/server.h"

/* The caller's. NULL: no memory. */
json_t *snap_serve_status(struct snap_server *server);
/* The names of its numbers. */
extern const struct mover_metric snap_serve_metrics[];

#endif
