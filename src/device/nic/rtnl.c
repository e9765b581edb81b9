/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rtnetlink dumps. Each snapshot opens its own short-lived socket: programs close descriptors they
 * do not know, and a kept one could turn into somebody else's. A dump that the kernel marks as
 * interrupted by a change is taken again.
 */
#include "device/nic/rtnl.h"

#include <assert.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fds.h"

/* The kernel fills a dump message up to the size of the reader's buffer, at most 32 KiB
 * (netlink_dump()). */
#define DUMP_BUFFER_BYTES 32768
#define DUMP_ATTEMPTS_MAX 8

typedef int (*dump_fn)(struct sw_rtnl_snapshot *snapshot, struct nlmsghdr *msg);

/* Makes room for one more element; capacities are the powers of two. */
static void *array_grow(void *array, int count, size_t element_bytes)
{
    if (count & (count - 1))
        return array;
    size_t capacity = count ? (size_t)count * 2 : 1;
    return reallocarray(array, capacity, element_bytes);
}

static int add_link(struct sw_rtnl_snapshot *snapshot, struct nlmsghdr *msg)
{
    if (msg->nlmsg_type != RTM_NEWLINK)
        return 0;
    struct ifinfomsg *info = NLMSG_DATA(msg);
    struct sw_rtnl_link link = {.ifindex = (unsigned int)info->ifi_index, .flags = info->ifi_flags};
    int len = (int)IFLA_PAYLOAD(msg);
    for (struct rtattr *attr = IFLA_RTA(info); RTA_OK(attr, len); attr = RTA_NEXT(attr, len)) {
        const void *data = RTA_DATA(attr);
        size_t data_len = RTA_PAYLOAD(attr);
        if (attr->rta_type == IFLA_IFNAME)
            memcpy(link.ifname, data, data_len < IF_NAMESIZE ? data_len : IF_NAMESIZE - 1);
        else if (attr->rta_type == IFLA_MTU && data_len >= sizeof(link.mtu_bytes))
            memcpy(&link.mtu_bytes, data, sizeof(link.mtu_bytes));
        else if (attr->rta_type == IFLA_ADDRESS && info->ifi_type == ARPHRD_ETHER &&
                 data_len == sizeof(link.mac))
            memcpy(link.mac, data, sizeof(link.mac));
    }
    struct sw_rtnl_link *grown =
        array_grow(snapshot->links, snapshot->link_count, sizeof(*snapshot->links));
    if (!grown)
        return -ENOMEM;
    snapshot->links = grown;
    snapshot->links[snapshot->link_count++] = link;
    return 0;
}

/* IFA_LOCAL is the interface's own address; IFA_ADDRESS is the peer's on point-to-point links. */
static const struct rtattr *rtnl_find_address(struct nlmsghdr *msg, struct ifaddrmsg *info)
{
    const struct rtattr *found = NULL;
    int len = (int)IFA_PAYLOAD(msg);
    for (struct rtattr *attr = IFA_RTA(info); RTA_OK(attr, len); attr = RTA_NEXT(attr, len)) {
        if (attr->rta_type == IFA_LOCAL)
            return attr;
        if (attr->rta_type == IFA_ADDRESS)
            found = attr;
    }
    return found;
}

static int add_addr(struct sw_rtnl_snapshot *snapshot, struct nlmsghdr *msg)
{
    if (msg->nlmsg_type != RTM_NEWADDR)
        return 0;
    struct ifaddrmsg *info = NLMSG_DATA(msg);
    const struct rtattr *attr = rtnl_find_address(msg, info);
    if (!attr || (info->ifa_flags & IFA_F_DADFAILED))
        return 0;

    struct sw_rtnl_addr addr = {.ifindex = info->ifa_index};
    if (info->ifa_family == AF_INET && RTA_PAYLOAD(attr) == 4) {
        addr.gid.raw[10] = addr.gid.raw[11] = 0xff;
        memcpy(addr.gid.raw + 12, RTA_DATA(attr), 4);
    } else if (info->ifa_family == AF_INET6 && RTA_PAYLOAD(attr) == 16) {
        memcpy(addr.gid.raw, RTA_DATA(attr), 16);
    } else {
        return 0;
    }
    struct sw_rtnl_addr *grown =
        array_grow(snapshot->addrs, snapshot->addr_count, sizeof(*snapshot->addrs));
    if (!grown)
        return -ENOMEM;
    snapshot->addrs = grown;
    snapshot->addrs[snapshot->addr_count++] = addr;
    return 0;
}

static int rtnl_send_request(int fd, uint16_t type, uint32_t seq)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg info; /* starts like ifaddrmsg and rtgenmsg: with the family */
        struct rtattr mask_attr;
        uint32_t mask;
    } request = {
        .head = {.nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP, .nlmsg_seq = seq},
        .info = {.ifi_family = AF_UNSPEC},
        .mask_attr = {.rta_type = IFLA_EXT_MASK, .rta_len = RTA_LENGTH(sizeof(uint32_t))},
        .mask = RTEXT_FILTER_SKIP_STATS,
    };
    static_assert(sizeof(request) == 40, "no padding between the parts of the request");
    request.head.nlmsg_len =
        type == RTM_GETLINK ? sizeof(request) : NLMSG_LENGTH(sizeof(struct ifaddrmsg));
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    ssize_t sent;
    do {
        sent = sendto(fd, &request, request.head.nlmsg_len, 0, (void *)&kernel, sizeof(kernel));
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

/* Handles one datagram of a dump. 1: the dump goes on, 0: complete, else a negative errno. */
static int handle_datagram(struct sw_rtnl_snapshot *snapshot, void *buffer, size_t len_bytes,
                           uint32_t seq, dump_fn fn)
{
    unsigned int len = (unsigned int)len_bytes;
    for (struct nlmsghdr *msg = buffer; NLMSG_OK(msg, len); msg = NLMSG_NEXT(msg, len)) {
        if (msg->nlmsg_seq != seq)
            continue;
        if (msg->nlmsg_flags & NLM_F_DUMP_INTR)
            return -EINTR;
        if (msg->nlmsg_type == NLMSG_DONE)
            return 0;
        if (msg->nlmsg_type == NLMSG_ERROR) {
            const struct nlmsgerr *error = NLMSG_DATA(msg);
            return error->error ? error->error : -EPROTO;
        }
        int err = fn(snapshot, msg);
        if (err)
            return err;
    }
    return 1;
}

static int dump_table(int fd, void *buffer, uint16_t type, struct sw_rtnl_snapshot *snapshot,
                      dump_fn fn)
{
    uint32_t seq = type;
    int err = rtnl_send_request(fd, type, seq);
    while (!err) {
        ssize_t got = recv(fd, buffer, DUMP_BUFFER_BYTES, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        int more = handle_datagram(snapshot, buffer, (size_t)got, seq, fn);
        if (more <= 0)
            return more;
    }
    return err;
}

static int take_once(struct sw_rtnl_snapshot *out)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0)
        return -errno;
    void *buffer = malloc(DUMP_BUFFER_BYTES);
    int err = buffer ? 0 : -ENOMEM;
    if (!err)
        err = dump_table(fd, buffer, RTM_GETLINK, out, add_link);
    if (!err)
        err = dump_table(fd, buffer, RTM_GETADDR, out, add_addr);
    free(buffer);
    close(fd);
    return err;
}

int sw_rtnl_snapshot_take(struct sw_rtnl_snapshot *out)
{
    int err = -EINTR;
    for (int i = 0; err == -EINTR && i < DUMP_ATTEMPTS_MAX; i++) {
        struct sw_rtnl_snapshot snapshot = {0};
        err = take_once(&snapshot);
        if (err)
            sw_rtnl_snapshot_free(&snapshot);
        else
            *out = snapshot;
    }
    return err;
}

void sw_rtnl_snapshot_free(struct sw_rtnl_snapshot *snapshot)
{
    free(snapshot->links);
    free(snapshot->addrs);
}

int sw_rtnl_monitor_open(void)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (fd < 0)
        return -errno;
    struct sockaddr_nl groups = {
        .nl_family = AF_NETLINK,
        .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR,
    };
    if (bind(fd, (void *)&groups, sizeof(groups))) {
        int err = errno;
        close(fd);
        return -err;
    }
    return sw_fd_own(fd);
}

void sw_rtnl_monitor_drain(int fd)
{
    char ignored[64];
    /* ENOBUFS only says that notices were lost, which a full snapshot makes up for. */
    while (recv(fd, ignored, sizeof(ignored), MSG_DONTWAIT | MSG_TRUNC) >= 0 || errno == ENOBUFS ||
           errno == EINTR)
        ;
}

unsigned int sw_rtnl_speed_mbps(const char *ifname)
{
    /* By ioctl and not from sysfs, which shows the interfaces of the network namespace it was
     * mounted in. */
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    struct ethtool_cmd settings = {.cmd = ETHTOOL_GSET};
    struct ifreq request = {.ifr_data = (void *)&settings};
    memcpy(request.ifr_name, ifname, strnlen(ifname, IF_NAMESIZE - 1));
    int failed = ioctl(fd, SIOCETHTOOL, &request);
    close(fd);
    uint32_t speed_mbps = (uint32_t)settings.speed_hi << 16 | settings.speed;
    return failed || speed_mbps == (uint32_t)SPEED_UNKNOWN || speed_mbps == UINT16_MAX ? 0
                                                                                       : speed_mbps;
}
