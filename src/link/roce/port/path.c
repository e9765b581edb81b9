/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/roce/port/path.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "device/nic/netdev.h"

bool sw_roce_is_ipv4(const struct in6_addr *address)
{
    return IN6_IS_ADDR_V4MAPPED(address);
}

bool sw_roce_is_multicast(const struct in6_addr *address)
{
    return IN6_IS_ADDR_MULTICAST(address) ||
           (sw_roce_is_ipv4(address) && address->s6_addr[12] >> 4 == 0xe);
}

int sw_roce_path_set(struct sw_roce_path *path, const uint8_t source[16], const uint8_t dest[16],
                     uint32_t ifindex)
{
    struct in6_addr from, to;
    memcpy(&from, source, sizeof(from));
    memcpy(&to, dest, sizeof(to));
    if (IN6_IS_ADDR_UNSPECIFIED(&to) || IN6_IS_ADDR_UNSPECIFIED(&from) ||
        sw_roce_is_ipv4(&from) != sw_roce_is_ipv4(&to))
        return -EINVAL;
    path->source = from;
    path->dest = to;
    path->is_ipv4 = sw_roce_is_ipv4(&to);
    path->ifindex = IN6_IS_ADDR_LINKLOCAL(&to) || sw_roce_is_multicast(&to) ? ifindex : 0;
    return 0;
}

bool sw_roce_path_is_same(const struct sw_roce_path *one, const struct sw_roce_path *other)
{
    return one->sender == other->sender && one->traffic_class == other->traffic_class &&
           one->hop_limit == other->hop_limit && one->dest_port == other->dest_port &&
           one->ifindex == other->ifindex && one->is_carried == other->is_carried &&
           IN6_ARE_ADDR_EQUAL(&one->dest, &other->dest) &&
           IN6_ARE_ADDR_EQUAL(&one->source, &other->source);
}

void sw_roce_icrc(const struct in6_addr *source, const struct in6_addr *dest, uint16_t source_port,
                  uint16_t dest_port, struct sw_icrc_flow *out)
{
    struct sw_flow flow = {
        .is_ipv6 = !sw_roce_is_ipv4(dest),
        .dont_fragment = true,
        .src_port = source_port,
        .dst_port = dest_port,
    };
    memcpy(flow.src, source->s6_addr + (flow.is_ipv6 ? 0 : 12), flow.is_ipv6 ? 16 : 4);
    memcpy(flow.dst, dest->s6_addr + (flow.is_ipv6 ? 0 : 12), flow.is_ipv6 ? 16 : 4);
    sw_icrc_flow_init(out, &flow);
}

unsigned int sw_roce_sockaddr(const struct in6_addr *address, uint16_t port, uint32_t ifindex,
                              struct sockaddr_in6 *out)
{
    memset(out, 0, sizeof(*out));
    if (sw_roce_is_ipv4(address)) {
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
        memcpy(&v4.sin_addr, address->s6_addr + 12, 4);
        memcpy(out, &v4, sizeof(v4));
        return sizeof(v4);
    }
    out->sin6_family = AF_INET6;
    out->sin6_port = htons(port);
    out->sin6_addr = *address;
    out->sin6_scope_id = ifindex;
    return sizeof(*out);
}

void sw_roce_address(const struct sockaddr_in6 *from, struct in6_addr *address, uint16_t *port)
{
    *port = ntohs(from->sin6_port); /* at the same place in both kinds */
    if (from->sin6_family == AF_INET6) {
        *address = from->sin6_addr;
        return;
    }
    struct sockaddr_in v4;
    memcpy(&v4, from, sizeof(v4));
    memset(address, 0, 10);
    address->s6_addr[10] = address->s6_addr[11] = 0xff;
    memcpy(address->s6_addr + 12, &v4.sin_addr, 4);
}

const char *sw_roce_address_text(const struct in6_addr *address, char text[SW_ROCE_ADDRESS_TEXT])
{
    const char *done = sw_roce_is_ipv4(address)
                           ? inet_ntop(AF_INET, address->s6_addr + 12, text, SW_ROCE_ADDRESS_TEXT)
                           : inet_ntop(AF_INET6, address, text, SW_ROCE_ADDRESS_TEXT);
    return done ? done : "?";
}

struct sw_netdev *sw_roce_device_at(const struct in6_addr *own)
{
    union ibv_gid gid;
    memcpy(gid.raw, own, sizeof(gid.raw));
    return sw_netdev_with_gid(&gid);
}
