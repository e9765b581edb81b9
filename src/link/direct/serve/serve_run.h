/* SPDX-License-Identifier: BSD-2-Clause */
/* Short messages that lie in records, many at once. */
#ifndef SW_LINK_DIRECT_SERVE_SERVE_RUN_H
#define SW_LINK_DIRECT_SERVE_SERVE_RUN_H

#include <stdint.h>

struct sw_direct_qp;
struct sw_qp;

/* Serves records from `serve.at` on, at most `most`: as long as they are of the `kind` that the
 * caller has read, SEND_INLINE or SEND_WHOLE, go to the same queue of receives, and nothing is out
 * of the ordinary. Returns how many. None: the first is for the path that serves records one by
 * one, and finds out why. */
uint32_t sw_serve_together(struct sw_qp *qp, struct sw_direct_qp *d, uint8_t kind, uint32_t most);

#endif
