/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests by key that the target executes: WRITE, READ, atomics and FLUSH. */
#ifndef SW_LINK_DIRECT_SERVE_SERVE_KEY_H
#define SW_LINK_DIRECT_SERVE_SERVE_KEY_H

#include "link/direct/serve/serve.h"

/* Requests by key; see sw_mr_serving. */
enum sw_serve sw_serve_by_key(struct sw_qp *qp, struct sw_direct_qp *d,
                              const struct sw_peer_request *request);

#endif
