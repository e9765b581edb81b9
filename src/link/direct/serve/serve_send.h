/* SPDX-License-Identifier: BSD-2-Clause */
/* SENDs that the target places: in pieces through the bounce area, whole in records, fetched from
 * the peer's memory, or what the peer could not place itself. */
#ifndef SW_LINK_DIRECT_SERVE_SERVE_SEND_H
#define SW_LINK_DIRECT_SERVE_SERVE_SEND_H

#include "link/direct/serve/serve.h"

enum sw_serve sw_serve_send(struct sw_qp *qp, struct sw_direct_qp *d,
                            const struct sw_peer_request *request);
enum sw_serve sw_serve_whole(struct sw_qp *qp, struct sw_direct_qp *d,
                             const struct sw_peer_request *request);
enum sw_serve sw_serve_partly(struct sw_qp *qp, struct sw_direct_qp *d,
                              const struct sw_peer_request *request);
/* Left and taken up again while there is more of the message than one step may move. */
enum sw_serve sw_serve_pull(struct sw_qp *qp, struct sw_direct_qp *d,
                            const struct sw_peer_request *request);

#endif
