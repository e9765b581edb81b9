/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast between hosts. A multicast GID is an IP group: the address itself, and for
 * ff0e::ffff:a.b.c.d (the form that the kernel makes of IPv4 groups) also a.b.c.d. The kernel gives
 * a packet for a group to every socket that has joined it, so each process gets its own copy
 * (open_second() has an exception).
 *
 * On one host the direct link delivers, so packets to groups do not come back to their host. If
 * some members there are strangers (direct/process/proof.h), they do come back to all, and members
 * that got the datagram by the direct link drop the second copy (datagram.c).
 *
 * Without the direct link they all come back. Where the kernel cannot bring them back to a member
 * (sw_roce_group_travels()), the sender gives each process with members a copy (port/share.h).
 */
#include "link/roce/group.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "device/queue/ah.h"
#include "link/link.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"
#include "link/roce/port/socket.h"
#include "link/roce/roce.h"

struct heard {
    struct heard *next;
    union ibv_gid gid;
    uint32_t ifindex;
    bool is_loopback;
    bool is_joined;
    int second; /* see open_second(); -1: none */
};

static struct sw_lock lock; /* leaf */
static struct heard *list;
static bool hears_loopback; /* for strangers of this host: the direct link does not serve them */

static atomic_bool loops; /* sent packets come back, for strangers on this host */

#define SECOND_SOCKETS_MAX 64
static atomic_int
    second_sockets[SECOND_SOCKETS_MAX]; /* descriptors, 0: free; for a forked child to close */

bool sw_roce_group_ipv4(const uint8_t gid[16], uint8_t out[16])
{
    static const uint8_t prefix[12] = {0xff, 0x0e, [10] = 0xff, [11] = 0xff};
    if (memcmp(gid, prefix, sizeof(prefix)) || gid[12] >> 4 != 0xe)
        return false;
    memset(out, 0, 10);
    memcpy(out + 10, gid + 10, 6);
    return true;
}

bool sw_roce_group_travels(struct sw_netdev *dev, const struct sw_path *path)
{
    struct sw_netdev_info info;
    struct in6_addr source;
    uint8_t ipv4[16];
    if (path->is_ipv4)
        return true;
    memcpy(&source, path->grh + 8, sizeof(source));
    if (sw_roce_is_ipv4(&source))
        return sw_roce_group_ipv4(path->dgid.raw, ipv4);
    sw_netdev_read(dev, &info);
    return strcmp(info.ifname, "lo") != 0;
}

struct sw_netdev *sw_roce_device_of(uint32_t ifindex)
{
    for (int i = 0; i < sw_netdev_count(); i++) {
        struct sw_netdev_info info;
        sw_netdev_read(sw_netdev_get(i), &info);
        if (info.ifindex == ifindex && info.up)
            return sw_netdev_get(i);
    }
    return NULL;
}

/* Fails if the port has no socket of the family, or the socket has joined as many groups as it may
 * (igmp_max_memberships). */
static int change_membership(const struct in6_addr *address, uint32_t ifindex, bool joins)
{
    const bool is_ipv4 = sw_roce_is_ipv4(address);
    const int fd = sw_roce.port.common_rx_fds[is_ipv4];
    int rc;
    if (fd < 0)
        return 0;
    if (is_ipv4) {
        struct ip_mreqn request = {.imr_ifindex = (int)ifindex};
        memcpy(&request.imr_multiaddr, address->s6_addr + 12, 4);
        rc = setsockopt(fd, IPPROTO_IP, joins ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &request,
                        sizeof(request));
    } else {
        struct ipv6_mreq request = {.ipv6mr_multiaddr = *address, .ipv6mr_interface = ifindex};
        rc = setsockopt(fd, IPPROTO_IPV6, joins ? IPV6_ADD_MEMBERSHIP : IPV6_DROP_MEMBERSHIP,
                        &request, sizeof(request));
    }
    return rc ? -errno : 0;
}

/*
 * Opens a second socket in an IPv4 group, which is never read. If a group has one socket only, the
 * kernel finds that by its early lookup, and then chooses again among all sockets that share the
 * port (seen in Linux 6.18). The packet may come to a process that has not joined. With two sockets
 * in the group, each gets the packet.
 */
static int open_second(const struct in6_addr *address)
{
    const int fd = sw_socket_receiving(true, address, sw_roce.port.udp_port, 0);
    if (fd < 0)
        return -1;
    sw_socket_set(fd, SOL_SOCKET, SO_RCVBUF, 0);
    for (int i = 0; i < SECOND_SOCKETS_MAX; i++) {
        int none = 0;
        if (atomic_compare_exchange_strong(&second_sockets[i], &none, fd))
            return fd;
    }
    close(fd);
    return -1;
}

static void close_second(int fd)
{
    for (int i = 0; i < SECOND_SOCKETS_MAX && fd > 0; i++) {
        int own = fd;
        if (atomic_compare_exchange_strong(&second_sockets[i], &own, 0))
            close(fd);
    }
}

/* Joins once the port is open, if anybody can be heard on that interface. */
static bool is_wanted(const struct heard *heard)
{
    return atomic_load(&sw_roce.open) &&
           (!heard->is_loopback || hears_loopback || !sw_link_has_direct());
}

static void change_group(struct heard *heard, bool joins)
{
    if (heard->is_joined == joins)
        return;
    heard->is_joined = joins;
    struct in6_addr address, ipv4;
    memcpy(&address, heard->gid.raw, sizeof(address));
    memcpy(&ipv4, &address, sizeof(ipv4));
    const bool is_ipv4 = sw_roce_is_ipv4(&address);
    const bool has_ipv4 = sw_roce_group_ipv4(heard->gid.raw, ipv4.s6_addr);
    close_second(heard->second);
    heard->second = joins && (is_ipv4 || has_ipv4) ? open_second(&ipv4) : -1;
    int rc = change_membership(&address, heard->ifindex, joins);
    if (has_ipv4) {
        int rc_ipv4 = change_membership(&ipv4, heard->ifindex, joins);
        rc = rc ? rc : rc_ipv4;
    }
    char text[SW_ROCE_ADDRESS_TEXT];
    if (rc && rc != -EADDRINUSE && joins) /* EADDRINUSE: it had joined before */
        sw_warn("cannot join the IP group %s: %s; its members on other hosts are not heard",
                sw_roce_address_text(&address, text), strerror(-rc));
}

void sw_roce_group_hear(struct sw_netdev *dev, const union ibv_gid *gid)
{
    struct sw_netdev_info info;
    struct heard *heard = malloc(sizeof(*heard));
    sw_netdev_read(dev, &info);
    if (!heard)
        return;
    *heard = (struct heard){.gid = *gid,
                            .ifindex = info.ifindex,
                            .is_loopback = !strcmp(info.ifname, "lo"),
                            .second = -1};
    sw_lock_acquire(&lock);
    heard->next = list;
    list = heard;
    if (is_wanted(heard))
        change_group(heard, true);
    sw_lock_release(&lock);
}

/* With the lock. */
static void join_wanted(void)
{
    for (struct heard *heard = list; heard; heard = heard->next)
        if (is_wanted(heard))
            change_group(heard, true);
}

void sw_roce_group_hear_loopback(void)
{
    sw_lock_acquire(&lock);
    hears_loopback = true;
    join_wanted();
    sw_lock_release(&lock);
}

void sw_roce_group_unhear(struct sw_netdev *dev, const union ibv_gid *gid)
{
    struct sw_netdev_info info;
    sw_netdev_read(dev, &info);
    sw_lock_acquire(&lock);
    struct heard **at = &list;
    while (*at && ((*at)->ifindex != info.ifindex || memcmp(&(*at)->gid, gid, sizeof(*gid))))
        at = &(*at)->next;
    struct heard *heard = *at;
    if (heard) {
        *at = heard->next;
        change_group(heard, false);
    }
    sw_lock_release(&lock);
    free(heard);
}

static void set_loop(bool is_on)
{
    for (int i = 0; i < 2; i++)
        for (uint32_t sender = 0; sender < SW_PORT_SENDERS; sender++)
            sw_socket_set(sw_roce.port.senders[i][sender], i ? IPPROTO_IP : IPPROTO_IPV6,
                          i ? IP_MULTICAST_LOOP : IPV6_MULTICAST_LOOP, is_on);
}

void sw_roce_group_open(void)
{
    sw_lock_acquire(&lock);
    for (int i = 0; i < 2; i++)
        sw_socket_set(sw_roce.port.common_rx_fds[i], i ? IPPROTO_IP : IPPROTO_IPV6,
                      i ? IP_MULTICAST_ALL : IPV6_MULTICAST_ALL, 0);
    set_loop(!sw_link_has_direct() || loops);
    join_wanted();
    sw_lock_release(&lock);
}

void sw_roce_group_loop(void)
{
    if (atomic_load_explicit(&loops, memory_order_relaxed))
        return;
    sw_lock_acquire(&lock);
    atomic_store(&loops, true);
    if (atomic_load(&sw_roce.open))
        set_loop(true);
    sw_lock_release(&lock);
}

void sw_roce_group_fork_child(void)
{
    lock = (struct sw_lock){0};
    hears_loopback = false;
    atomic_store(&loops, false);
    list = NULL; /* the parent's; a thread may have been changing it: not freed */
    for (int i = 0; i < SECOND_SOCKETS_MAX; i++) {
        const int fd = atomic_exchange(&second_sockets[i], 0);
        if (fd > 0)
            close(fd);
    }
}
