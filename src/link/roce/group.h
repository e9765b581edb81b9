/* SPDX-License-Identifier: BSD-2-Clause */
/* Multicast: a multicast GID is an IP group. Each device that has QPs in it joins it on its
 * interface. */
#ifndef SW_LINK_ROCE_GROUP_H
#define SW_LINK_ROCE_GROUP_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct sw_netdev;
struct sw_path;

void sw_roce_group_hear(struct sw_netdev *dev, const union ibv_gid *gid);
void sw_roce_group_unhear(struct sw_netdev *dev, const union ibv_gid *gid);
/* The port has been opened: joins the groups of all QPs. */
void sw_roce_group_open(void);
/* Joins groups on the loopback, too, for senders that the direct link does not serve. */
void sw_roce_group_hear_loopback(void);
/* From here on, what is sent to groups also comes to members on this host. */
void sw_roce_group_loop(void);
void sw_roce_group_fork_child(void);
/* The IPv4 group that a GID ff0e::ffff:a.b.c.d stands for, as a mapped address. False: not such a
 * GID. */
bool sw_roce_group_ipv4(const uint8_t gid[16], uint8_t out[16]);
/* Whether packets of a path to a group can leave by that interface, and come back to its members
 * there: Linux has no IPv6 groups on the loopback, nor any for senders with an IPv4 address. */
bool sw_roce_group_travels(struct sw_netdev *dev, const struct sw_path *path);
/* The device of an interface; NULL: there is none. */
struct sw_netdev *sw_roce_device_of(uint32_t ifindex);

#endif
