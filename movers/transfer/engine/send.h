/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the flow of a peer and the queue pair of a lane. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_SEND_H
#define SW_MOVERS_TRANSFER_ENGINE_SEND_H

#include <stdbool.h>

enum { XFE_SIGNAL = 16 }; /* one in so many asks for a completion */

struct xfe_lane;

bool xfe_send_post_receives(struct xfe_lane *lane);
/* Gives the device one list of what there is. False: there is no more, or no room. */
bool xfe_send_push(struct xfe_lane *lane);
void xfe_send_poll(struct xfe_lane *lane);

#endif
