/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which device and source address lead to a destination: what the kernel's routing says of it.
 * Whether there is a neighbour on the way is for resolving.h. iWARP has hardware addresses for
 * GIDs: that of a neighbour is what the kernel knows of it.
 *
 * Everything with sw_rdmacm_lock held; 0 or a negative errno.
 */
#ifndef SW_RDMACM_CONNECTIONS_ROUTE_H
#define SW_RDMACM_CONNECTIONS_ROUTE_H

#include "rdmacm/connections/id.h"

/* The device of id->src, and its GID as the source of the route. -EADDRNOTAVAIL: no address of this
 * host; -ENODEV: of an interface without a device. Sets nothing on failure. */
int sw_ucm_route_bind(struct sw_ucm_id *id);

/* Finds the device of a request that came: that of id->src, or the loopback's where that is a
 * loopback address which no device has. -EADDRNOTAVAIL: an address that has just gone. */
int sw_ucm_route_arrive(struct sw_ucm_id *id, const struct sw_cm_path *path);

/* The GID as packets have it: of a loopback address that no device has, the loopback's own. */
void sw_ucm_route_packet_gid(const uint8_t gid[16], uint8_t out[16]);

/* Fills in id->src where it is a wildcard, and id->dev. -ENETUNREACH and the like: no route;
 * *status is for what the kernel finds out later and tells by ADDR_ERROR: -ENODEV, no device. */
int sw_ucm_route_resolve_address(struct sw_ucm_id *id, int *status);

/* Fills in id->route. */
void sw_ucm_route_resolve(struct sw_ucm_id *id);

/* Looks once more for the hardware address of an iWARP device's neighbour, which the kernel may
 * have learned since. */
void sw_ucm_route_look(struct sw_ucm_id *id);

/* The route as the way of MADs. */
void sw_ucm_route_path(const struct sw_ucm_id *id, struct sw_cm_path *out);

#endif
