/* SPDX-License-Identifier: BSD-2-Clause */
/* A multicast GID is an IP group, joined on the interface of each device with QPs in it. */
#ifndef SW_LINK_ROCE_GROUP_H
#define SW_LINK_ROCE_GROUP_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct sw_netdev;

void sw_roce_group_hear(struct sw_netdev *dev, const union ibv_gid *gid);
void sw_roce_group_unhear(struct sw_netdev *dev, const union ibv_gid *gid);
/* The port has been opened. */
void sw_roce_group_open(void);
/* Groups are heard on the loopback, too, where the direct link alone does not bring all. */
void sw_roce_group_hear_loopback(void);
/* What is sent to groups comes to members on this host as well from here on. */
void sw_roce_group_loop(void);
void sw_roce_group_fork_child(void);
/* The IPv4 group that ff0e::ffff:a.b.c.d stands for, as a mapped address. False: it is none. */
bool sw_roce_group_ipv4(const uint8_t gid[16], uint8_t out[16]);
/* The device whose interface it is; NULL: none. */
struct sw_netdev *sw_roce_device_of(uint32_t ifindex);

#endif
