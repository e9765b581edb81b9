/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/connections/route.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/nic/context.h"
#include "device/nic/neighbour.h"
#include "device/nic/netdev.h"
#include "rdmacm/lock.h"

#define HOP_LIMIT 64
#define PACKET_LIFE_TIME 16 /* the kernel's for RoCE: 0.27 s */
#define PKEY 0xffff

/* The device with the address; of a link-local one only its own interface's will do. */
static struct sw_netdev *route_device_of(const union sw_address *address,
                                         struct sw_netdev_info *info)
{
    union ibv_gid gid;
    sw_address_to_gid(address, gid.raw);
    if (!sw_address_is_link_local(address)) {
        struct sw_netdev *dev = sw_netdev_with_address(&gid);
        if (dev)
            sw_netdev_read(dev, info);
        return dev;
    }
    for (int i = 0; i < sw_netdev_count(); i++) {
        sw_netdev_read(sw_netdev_get(i), info);
        if (info->ifindex == address->in6.sin6_scope_id)
            return sw_netdev_get(i);
    }
    return NULL;
}

/* The loopback's device, where it has one, whatever address of 127.0.0.0/8 is asked for. */
static struct sw_netdev *loopback_device(struct sw_netdev_info *info)
{
    union sw_address address = {.family = AF_INET};
    sw_address_set_loopback(&address);
    return route_device_of(&address, info);
}

/* Where no device has the loopback's address, its own stands in for it, or else the first that is
 * up, as in the kernel. Its first address by IP; *gid is that. */
static struct sw_netdev *any_device(struct sw_netdev_info *info, uint8_t gid[16])
{
    struct sw_netdev *loopback = loopback_device(info);
    for (int i = loopback ? -1 : 0; i < sw_netdev_count(); i++) {
        struct sw_netdev *dev = i < 0 ? loopback : sw_netdev_get(i);
        struct sw_gid entry;
        sw_netdev_read(dev, info);
        for (int j = 1; info->up && sw_netdev_address(dev, j, &entry); j += 2) {
            if (!entry.valid || entry.gid.raw[0] == 0xfe)
                continue;
            memcpy(gid, entry.gid.raw, 16);
            return dev;
        }
    }
    return NULL;
}

/* The steps of enum ibv_rate. */
static uint8_t rate_of(unsigned int speed_mbps)
{
    static const struct {
        unsigned int mbps;
        uint8_t rate;
    } rates[] = {{100000, IBV_RATE_100_GBPS}, {56000, IBV_RATE_56_GBPS}, {40000, IBV_RATE_40_GBPS},
                 {25000, IBV_RATE_25_GBPS},   {20000, IBV_RATE_20_GBPS}, {10000, IBV_RATE_10_GBPS},
                 {5000, IBV_RATE_5_GBPS}};
    if (speed_mbps == 0)
        return IBV_RATE_100_GBPS; /* memory */
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
        if (speed_mbps >= rates[i].mbps)
            return rates[i].rate;
    return IBV_RATE_2_5_GBPS;
}

/* Fills in what depends on the device alone. */
static void fill_of_device(struct sw_ucm_id *id)
{
    struct sw_netdev_info info;
    sw_netdev_read(id->dev, &info);
    id->route.mtu = (uint8_t)sw_context_mtu(info.mtu_bytes);
    id->route.rate = rate_of(info.speed_mbps);
    id->route.hop_limit = HOP_LIMIT;
    id->route.packet_life_time =
        id->timeout_set && id->timeout ? (uint8_t)(id->timeout - 1) : PACKET_LIFE_TIME;
}

/* iWARP's GIDs are hardware addresses: the own one, and the peer's where it is this host, or a
 * neighbour that the kernel knows. */
static void set_iwarp_gids(struct sw_ucm_id *id)
{
    struct sw_gid gid;
    union ibv_gid peer;
    if (!id->dev || !sw_netdev_is_iwarp(id->dev))
        return;
    sw_netdev_gid(id->dev, 0, &gid);
    memcpy(id->route.sgid, gid.gid.raw, sizeof(id->route.sgid));
    sw_address_to_gid(&id->dst, peer.raw);
    struct sw_netdev *dev = sw_netdev_iwarp_at(&peer);
    memset(id->route.dgid, 0, sizeof(id->route.dgid));
    if (dev && sw_netdev_gid(dev, 0, &gid))
        memcpy(id->route.dgid, gid.gid.raw, sizeof(id->route.dgid));
    else if (!sw_address_is_any(&id->dst))
        sw_neighbour_find(id->ifindex, &peer, id->route.dgid);
}

void sw_ucm_route_look(struct sw_ucm_id *id)
{
    static const uint8_t none[sizeof(id->route.dgid)];
    sw_rdmacm_assert_locked();
    if (!memcmp(id->route.dgid, none, sizeof(none)))
        set_iwarp_gids(id);
}

static void attach_device(struct sw_ucm_id *id, struct sw_netdev *dev,
                          const struct sw_netdev_info *info)
{
    id->dev = dev;
    id->ifindex = info->ifindex;
    fill_of_device(id);
}

int sw_ucm_route_bind(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    struct sw_netdev_info info;
    union ibv_gid gid;
    struct sw_netdev *dev = route_device_of(&id->src, &info);
    sw_address_to_gid(&id->src, gid.raw);
    if (!dev)
        return sw_address_is_loopback(&id->src) ? 0
               : sw_netdev_is_local_gid(&gid)   ? -ENODEV
                                                : -EADDRNOTAVAIL;
    memcpy(id->route.sgid, gid.raw, sizeof(id->route.sgid));
    attach_device(id, dev, &info);
    set_iwarp_gids(id);
    return 0;
}

void sw_ucm_route_packet_gid(const uint8_t gid[16], uint8_t out[16])
{
    static const uint8_t prefix[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127};
    struct sw_netdev_info info;
    union sw_address own = {.family = AF_INET};
    union ibv_gid named;
    memcpy(named.raw, gid, sizeof(named.raw));
    memcpy(out, gid, sizeof(named.raw));
    if (memcmp(gid, prefix, sizeof(prefix)) != 0 || sw_netdev_with_address(&named) ||
        !loopback_device(&info))
        return;
    sw_address_set_loopback(&own);
    sw_address_to_gid(&own, out);
}

int sw_ucm_route_arrive(struct sw_ucm_id *id, const struct sw_cm_path *path)
{
    sw_rdmacm_assert_locked();
    struct sw_netdev_info info;
    uint8_t gid[16]; /* its own is not needed: the peer has named one */
    struct sw_netdev *dev = route_device_of(&id->src, &info);
    if (!dev && sw_address_is_loopback(&id->src))
        dev = any_device(&info, gid);
    if (!dev)
        return -EADDRNOTAVAIL;
    memcpy(id->route.sgid, path->local_gid, sizeof(id->route.sgid));
    memcpy(id->route.dgid, path->remote_gid, sizeof(id->route.dgid));
    attach_device(id, dev, &info);
    return 0;
}

/* The source address that the kernel would give to a socket connected to `dst`. System calls, since
 * a library that makes RDMA of sockets may stand before libc's. */
static int route_ask_kernel(const union sw_address *dst, union sw_address *src)
{
    union sw_address to = *dst, from = *src;
    socklen_t len = (socklen_t)sw_address_size(dst);
    long fd = syscall(SYS_socket, dst->family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int rc = 0;
    sw_address_set_port(&to, 9); /* one that routes may be asked for: nothing is sent */
    sw_address_set_port(&from, 0);
    if ((!sw_address_is_any(src) && syscall(SYS_bind, fd, &from, len)) ||
        syscall(SYS_connect, fd, &to, len) || syscall(SYS_getsockname, fd, &from, &len))
        rc = -errno;
    syscall(SYS_close, fd);
    if (rc)
        return rc;
    sw_address_set_port(&from, sw_address_port(src));
    *src = from;
    return 0;
}

/* An address of this host is reached from itself. */
static bool is_own(const union sw_address *dst)
{
    union ibv_gid gid;
    sw_address_to_gid(dst, gid.raw);
    return !sw_address_is_link_local(dst) && sw_netdev_is_local_gid(&gid);
}

static int route_find_source(const union sw_address *dst, union sw_address *src)
{
    if (!sw_address_is_any(src))
        return sw_address_is_loopback(src) || is_own(dst) ? 0 : route_ask_kernel(dst, src);
    if (!is_own(dst))
        return route_ask_kernel(dst, src);
    uint16_t port = sw_address_port(src);
    *src = *dst;
    if (sw_address_is_loopback(dst))
        sw_address_set_loopback(src);
    sw_address_set_port(src, port);
    return 0;
}

static int resolve_gids(struct sw_ucm_id *id, const union sw_address *dst)
{
    struct sw_netdev_info info;
    struct sw_netdev *dev = route_device_of(&id->src, &info);
    sw_address_to_gid(&id->src, id->route.sgid);
    sw_address_to_gid(dst, id->route.dgid);
    if (!dev && sw_address_is_loopback(dst) && (dev = any_device(&info, id->route.sgid)))
        memcpy(id->route.dgid, id->route.sgid, sizeof(id->route.dgid));
    if (!dev)
        return -ENODEV;
    attach_device(id, dev, &info);
    set_iwarp_gids(id);
    return 0;
}

int sw_ucm_route_resolve_address(struct sw_ucm_id *id, int *status)
{
    sw_rdmacm_assert_locked();
    union sw_address dst = id->dst, src = id->src;
    if (sw_address_is_any(&dst))
        sw_address_set_loopback(&dst);
    if (id->dst.family != AF_IB) {
        int rc = route_find_source(&dst, &src);
        if (rc)
            return rc;
    }
    union sw_address before = id->src;
    id->src = src;
    *status = resolve_gids(id, &dst);
    if (*status)
        id->src = before;
    return 0;
}

void sw_ucm_route_resolve(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    fill_of_device(id);
    id->route.traffic_class = id->tos_set ? id->tos : 0;
    uint32_t given = id->src.family == AF_INET6 ? ntohl(id->src.in6.sin6_flowinfo) & 0xfffff : 0;
    /* Spreads connections over the paths of a network, as the kernel does. */
    id->route.flow_label =
        given ? given : (sw_address_port(&id->src) * 31u + sw_address_port(&id->dst)) & 0xfffff;
    id->has_path = !sw_netdev_is_iwarp(id->dev);
    set_iwarp_gids(id);
}

void sw_ucm_route_path(const struct sw_ucm_id *id, struct sw_cm_path *out)
{
    memset(out, 0, sizeof(*out));
    memcpy(out->local_gid, id->route.sgid, sizeof(out->local_gid));
    memcpy(out->remote_gid, id->route.dgid, sizeof(out->remote_gid));
    out->ifindex = id->ifindex;
    out->pkey = PKEY;
    out->traffic_class = id->route.traffic_class;
    out->hop_limit = id->route.hop_limit;
}
