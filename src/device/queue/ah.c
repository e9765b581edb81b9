/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/ah.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <string.h>

#include "device/nic/context_impl.h"

#define NEXT_HEADER_IBA 0x1b /* IBTA Vol1 8.3: a RoCE v1 packet */
#define HOP_LIMIT_DEFAULT 64 /* what a handle that names none gets */

/* Lengths on a wire: IBTA Vol1 9.2, 9.3.2, 9.3.3; RoCEv2 annex A17.3.1. */
#define BTH_BYTES 12u
#define DETH_BYTES 8u
#define IMM_BYTES 4u
#define ICRC_BYTES 4u
#define UDP_BYTES 8u

static bool is_ipv4_mapped(const union ibv_gid *gid)
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
    return !memcmp(gid->raw, prefix, sizeof(prefix));
}

bool sw_gid_is_multicast(const union ibv_gid *gid)
{
    return gid->raw[0] == 0xff || (is_ipv4_mapped(gid) && gid->raw[12] >> 4 == 0xe);
}

/* RFC 791 3.1: of 16-bit words, the carries not yet folded. */
static uint32_t ip_sum(const struct iphdr *header)
{
    const uint8_t *bytes = (const uint8_t *)header;
    uint32_t sum = 0;
    for (size_t i = 0; i < sizeof(*header); i += 2)
        sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
    return sum;
}

static void fill_ipv4(struct sw_path *path, const struct ibv_global_route *route,
                      const union ibv_gid *source)
{
    struct iphdr ip = {
        .version = 4,
        .ihl = 5,
        .tos = route->traffic_class,
        .frag_off = htobe16(IP_DF),
        .ttl = route->hop_limit ? route->hop_limit : HOP_LIMIT_DEFAULT,
        .protocol = IPPROTO_UDP,
    };
    memcpy(&ip.saddr, source->raw + 12, 4);
    memcpy(&ip.daddr, route->dgid.raw + 12, 4);
    memcpy(path->grh + SW_GRH_BYTES - sizeof(ip), &ip, sizeof(ip));
    path->ip_sum = ip_sum(&ip);
}

static void fill_grh(struct sw_path *path, const struct ibv_global_route *route,
                     const union ibv_gid *source)
{
    struct ibv_grh grh = {
        .version_tclass_flow = htobe32(6u << 28 | (uint32_t)route->traffic_class << 20 |
                                       (route->flow_label & 0xfffff)),
        .next_hdr = path->is_v1 ? NEXT_HEADER_IBA : IPPROTO_UDP,
        .hop_limit = route->hop_limit ? route->hop_limit : HOP_LIMIT_DEFAULT,
        .sgid = *source,
        .dgid = route->dgid,
    };
    static_assert(sizeof(grh) == SW_GRH_BYTES, "IBTA Vol1 8.3");
    memcpy(path->grh, &grh, sizeof(grh));
}

/* Ethernet has no service level for the receiver's completion to report. Hardware tells the kind of
 * packet there, bit 3: it has a UDP header, bits 0-2: GRH, IPv6, IPv4. UCX before 1.18 drops what
 * does not. */
static uint8_t wc_sl(const struct sw_path *path)
{
    if (path->is_v1)
        return 0;
    return path->is_ipv4 ? 8 | 2 : 8 | 1;
}

int sw_ah_init(struct sw_ah *ah, const struct sw_pd *pd, struct sw_netdev *dev,
               const struct ibv_ah_attr *attr)
{
    ah->pd_id = pd->id;
    struct sw_gid source;
    if (sw_netdev_is_iwarp(dev))
        return -EOPNOTSUPP;
    if (attr->port_num != 1 || !attr->is_global || attr->sl > 15 ||
        !sw_netdev_gid(dev, attr->grh.sgid_index, &source) || !source.valid)
        return -EINVAL;
    struct sw_path *path = &ah->path;
    memset(path, 0, sizeof(*path));
    path->dgid = attr->grh.dgid;
    path->is_v1 = source.type == SW_GID_ROCE_V1;
    path->is_ipv4 = !path->is_v1 && is_ipv4_mapped(&source.gid) && is_ipv4_mapped(&path->dgid);
    path->is_multicast = sw_gid_is_multicast(&path->dgid);
    if (path->is_ipv4)
        fill_ipv4(path, &attr->grh, &source.gid);
    else
        fill_grh(path, &attr->grh, &source.gid);
    path->wc_sl = wc_sl(path);
    atomic_store(&ah->local, UINT64_MAX);
    return 0;
}

void sw_path_of_arrival(struct sw_path *path, const union ibv_gid *source,
                        const union ibv_gid *dest, uint8_t traffic_class, uint8_t hop_limit)
{
    const struct ibv_global_route route = {
        .dgid = *dest, .traffic_class = traffic_class, .hop_limit = hop_limit};
    memset(path, 0, sizeof(*path));
    path->dgid = *dest;
    path->is_ipv4 = is_ipv4_mapped(dest);
    path->is_multicast = sw_gid_is_multicast(dest);
    if (path->is_ipv4)
        fill_ipv4(path, &route, source);
    else
        fill_grh(path, &route, source);
    path->wc_sl = wc_sl(path);
}

bool sw_ah_is_local(struct sw_ah *ah)
{
    uint64_t now = sw_netdev_generation();
    uint64_t seen = atomic_load_explicit(&ah->local, memory_order_relaxed);
    if (seen >> 1 != now) {
        seen = now << 1 | sw_netdev_is_local_gid(&ah->path.dgid);
        atomic_store_explicit(&ah->local, seen, memory_order_relaxed);
    }
    return seen & 1;
}

static void put_be16(uint8_t *to, uint32_t value)
{
    to[0] = (uint8_t)(value >> 8);
    to[1] = (uint8_t)value;
}

void sw_path_grh(const struct sw_path *path, uint32_t len_bytes, bool has_imm,
                 uint8_t grh[SW_GRH_BYTES])
{
    uint32_t packet =
        BTH_BYTES + DETH_BYTES + (has_imm ? IMM_BYTES : 0) + ((len_bytes + 3) & ~3u) + ICRC_BYTES;
    memcpy(grh, path->grh, SW_GRH_BYTES); /* into a peer's memory: not to be read back */
    if (path->is_ipv4) {
        uint8_t *ip = grh + SW_GRH_BYTES - sizeof(struct iphdr);
        uint32_t total = sizeof(struct iphdr) + UDP_BYTES + packet, sum = path->ip_sum + total;
        sum = (sum & 0xffff) + (sum >> 16);
        put_be16(ip + offsetof(struct iphdr, tot_len), total);
        put_be16(ip + offsetof(struct iphdr, check), ~(sum + (sum >> 16)));
    } else {
        put_be16(grh + offsetof(struct ibv_grh, paylen), packet + (path->is_v1 ? 0 : UDP_BYTES));
    }
}

union ibv_gid sw_grh_dgid(const uint8_t grh[SW_GRH_BYTES])
{
    union ibv_gid dgid = {.raw = {[10] = 0xff, 0xff}};
    if (grh[0] >> 4 == 6)
        memcpy(dgid.raw, grh + offsetof(struct ibv_grh, dgid), sizeof(dgid.raw));
    else
        memcpy(dgid.raw + 12, grh + SW_GRH_BYTES - sizeof(uint32_t), sizeof(uint32_t));
    return dgid;
}
