/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The members of a multicast group, among the processes of this host. A process with attached QPs
 * announces it by a socket with the name of the group (registry.h).
 */
#ifndef SW_LINK_DIRECT_DATAGRAM_MULTICAST_H
#define SW_LINK_DIRECT_DATAGRAM_MULTICAST_H

#include <infiniband/verbs.h>
#include <stdint.h>

int sw_multicast_join(const union ibv_gid *gid);
void sw_multicast_leave(const union ibv_gid *gid);
/* Slots of the processes with QPs in a group, as of a few milliseconds ago. Their number. */
#define SW_MULTICAST_MEMBERS 256u
uint32_t sw_multicast_members(const union ibv_gid *gid, uint16_t slots[SW_MULTICAST_MEMBERS]);
void sw_multicast_fork_child(void);

#endif
