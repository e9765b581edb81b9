/* SPDX-License-Identifier: BSD-2-Clause */
/* Ports of devices that come and go, and what lanes of peers do then. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_PORT_H
#define SW_MOVERS_TRANSFER_ENGINE_PORT_H

struct xfe_device;

/* What the device says of its ports. */
void xfe_ports_events(struct xfe_device *device);

#endif
