/* SPDX-License-Identifier: BSD-2-Clause */
/* The links a queue pair may use. */
#ifndef SW_LINK_LINK_H
#define SW_LINK_LINK_H

#include <stdbool.h>

/* Makes the links known to the device; before the first device is opened. Idempotent. */
void sw_link_init(void);

struct sw_counts;
struct sw_netdev;
/* What the living processes of this user on this host have counted on a device, this one included.
 * Asks them; waits half a second at most for those that do not answer. Callable without a NIC. */
void sw_link_survey(struct sw_netdev *dev, struct sw_counts *out);

struct sw_route;
/* Whether a datagram goes out by RoCE. */
bool sw_link_is_far(const struct sw_route *route);

#endif
