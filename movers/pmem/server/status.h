/* SPDX-License-Identifier: BSD-2-Clause */
/* What a server has counted, for its control socket: as clients are told of regions that they have
 * rights on, and more. */
#ifndef SW_MOVERS_PMEM_STATUS_H
#define SW_MOVERS_PMEM_STATUS_H

#include "common/serve/metrics.h"
#include "pmem/server/server.h"

/* The caller's. NULL: no memory. */
json_t *pms_status(const struct pms_server *server);
/* The names of its numbers. */
extern const struct mover_metric pms_metrics[];

#endif
