/* SPDX-License-Identifier: BSD-2-Clause */
/* What the kernel says of network interfaces and their addresses, through rtnetlink (RFC 3549,
 * rtnetlink(7)). */
#ifndef SW_DEVICE_NIC_RTNL_H
#define SW_DEVICE_NIC_RTNL_H

#include <infiniband/verbs.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

struct sw_rtnl_link {
    unsigned int ifindex;
    char ifname[IF_NAMESIZE];
    unsigned int flags; /* IFF_* */
    unsigned int mtu_bytes;
    uint8_t mac[6]; /* zero if the hardware address is not of Ethernet's kind */
};

struct sw_rtnl_addr {
    unsigned int ifindex;
    union ibv_gid gid; /* the IPv6 address, or the IPv4 address mapped into IPv6 */
};

/* Both arrays are in the kernel's order: links by ifindex, addresses as configured. */
struct sw_rtnl_snapshot {
    struct sw_rtnl_link *links;
    struct sw_rtnl_addr *addrs;
    int link_count;
    int addr_count;
};

/* 0 or a negative errno; on success sw_rtnl_snapshot_free() releases it. */
int sw_rtnl_snapshot_take(struct sw_rtnl_snapshot *out);
void sw_rtnl_snapshot_free(struct sw_rtnl_snapshot *snapshot);

/* A non-blocking close-on-exec socket that becomes readable when links or addresses change, or a
 * negative errno. */
int sw_rtnl_monitor_open(void);
void sw_rtnl_monitor_drain(int fd);

/* Link speed in Mb/s as the driver tells it, 0 if it does not. */
unsigned int sw_rtnl_speed_mbps(const char *ifname);

#endif
