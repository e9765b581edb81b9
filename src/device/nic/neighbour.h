/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel's table of neighbours: who is reached by which hardware address (rtnetlink(7)). */
#ifndef SW_DEVICE_NIC_NEIGHBOUR_H
#define SW_DEVICE_NIC_NEIGHBOUR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

/* The hardware address of a neighbour at this interface. false: the kernel does not know it, since
 * nothing was sent there lately, or it is behind a router. Sends nothing to anybody. */
bool sw_neighbour_find(unsigned int ifindex, const union ibv_gid *address, uint8_t mac[6]);

#endif
