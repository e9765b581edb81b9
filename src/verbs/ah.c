/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Address handles. RoCE has no LIDs: a handle without a global route names nobody (RoCEv2 annex
 * A17.4.1), so it is refused. librdmacm's datagram sockets make one by the port's own LID, to send
 * to themselves; they do not work on RoCE anywhere else.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <string.h>

#include "device/queue/ah.h"
#include "verbs/object.h"
#include "verbs/stock.h"

#define GRH_NEXT_HEADER_IBA 0x1b /* IBTA Vol 1 8.3: a RoCE v1 packet */

static bool is_librdmacm(const void *caller)
{
    Dl_info info;
    if (!dladdr(caller, &info) || !info.dli_fname)
        return false;
    const char *slash = strrchr(info.dli_fname, '/');
    return !strncmp(slash ? slash + 1 : info.dli_fname, "librdmacm.so", strlen("librdmacm.so"));
}

/* The way from the port to itself, by its first RoCE v2 address. */
static void address_self(struct ibv_context *context, struct ibv_ah_attr *attr)
{
    struct sw_gid own = {.valid = false};
    int index = 1;
    if (sw_netdev_is_iwarp(sw_verbs_netdev_of(context)))
        return;
    while (sw_netdev_gid(sw_verbs_netdev_of(context), index, &own) && !own.valid)
        index += 2;
    if (!own.valid)
        return;
    attr->is_global = 1;
    attr->grh = (struct ibv_global_route){.dgid = own.gid, .sgid_index = (uint8_t)index};
}

SW_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *given)
{
    if (!sw_verbs_is_ours(pd->context->device))
        return sw_stock()->create_ah(pd, given);
    struct ibv_ah_attr own = *given, *attr = &own;
    if (!own.is_global && !own.dlid && is_librdmacm(__builtin_return_address(0)))
        address_self(pd->context, &own);
    struct sw_ah *ah = sw_verbs_object_alloc(pd->context, sizeof(*ah));
    if (!ah)
        return NULL;
    const int rc = sw_ah_init(ah, sw_verbs_pd_of(pd)->dev, sw_verbs_netdev_of(pd->context), attr);
    if (rc) {
        sw_verbs_object_free(pd->context, ah);
        return sw_verbs_fail(rc);
    }
    ah->ibv.context = pd->context;
    ah->ibv.pd = pd;
    ah->ibv.handle = sw_verbs_next_handle();
    sw_pd_ref(sw_verbs_pd_of(pd)->dev);
    return &ah->ibv;
}

SW_EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
    if (!sw_verbs_is_ours(ah->context->device))
        return sw_stock()->destroy_ah(ah);
    sw_pd_unref(sw_verbs_pd_of(ah->pd)->dev);
    sw_verbs_object_free(ah->context, ah);
    return 0;
}

/* The index of a local GID of the given type, or -1. */
static int find_gid(struct ibv_context *context, const union ibv_gid *gid, enum sw_gid_type type)
{
    struct sw_gid entry;
    for (int i = 0; sw_netdev_gid(sw_verbs_netdev_of(context), i, &entry); i++)
        if (entry.valid && entry.type == type && !memcmp(entry.gid.raw, gid->raw, sizeof(gid->raw)))
            return i;
    return -1;
}

static uint16_t ip_checksum(const struct iphdr *header)
{
    const uint8_t *bytes = (const uint8_t *)header;
    uint32_t sum = 0;
    for (size_t i = 0; i < sizeof(*header); i += 2)
        sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

/*
 * A RoCEv2 packet over IPv4 leaves its IP header in the last 20 of the 40 bytes (annex A17.4.5.2),
 * and what stands before is undefined, so the version nibble of the GRH alone does not tell. An
 * intact IPv4 header does: its checksum sums to zero.
 */
static bool holds_ipv4(const struct ibv_grh *grh, struct iphdr *ip)
{
    memcpy(ip, (const uint8_t *)grh + sizeof(*grh) - sizeof(*ip), sizeof(*ip));
    if (ip->version != 4)
        return false;
    const bool is_ipv6 = be32toh(grh->version_tclass_flow) >> 28 == 6;
    return !is_ipv6 || (ip->ihl == 5 && ip_checksum(ip) == 0);
}

static union ibv_gid mapped_gid(uint32_t ipv4)
{
    union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};
    memcpy(gid.raw + 12, &ipv4, sizeof(ipv4));
    return gid;
}

/* 0 or -1 with errno. */
static int route_back(struct ibv_context *context, const struct ibv_grh *grh,
                      struct ibv_global_route *route)
{
    const uint32_t version_tclass_flow = be32toh(grh->version_tclass_flow);
    union ibv_gid local = grh->dgid;
    enum sw_gid_type type = grh->next_hdr == GRH_NEXT_HEADER_IBA ? SW_GID_ROCE_V1 : SW_GID_ROCE_V2;
    struct iphdr ip;

    route->flow_label = version_tclass_flow & 0xfffff;
    if (holds_ipv4(grh, &ip)) {
        local = mapped_gid(ip.daddr);
        type = SW_GID_ROCE_V2;
        route->dgid = mapped_gid(ip.saddr);
        route->hop_limit = ip.ttl;
        route->traffic_class = ip.tos;
    } else if (version_tclass_flow >> 28 == 6 &&
               (grh->next_hdr == GRH_NEXT_HEADER_IBA || grh->next_hdr == IPPROTO_UDP)) {
        route->dgid = grh->sgid;
        route->hop_limit = grh->hop_limit;
        route->traffic_class = (uint8_t)(version_tclass_flow >> 20);
    } else {
        errno = EPROTONOSUPPORT;
        return -1;
    }
    const int index =
        find_gid(context, &local, type); /* fails for a multicast group, which is never ours */
    if (index < 0) {
        errno = EINVAL;
        return -1;
    }
    route->sgid_index = (uint8_t)index;
    return 0;
}

static int init_from_wc(struct ibv_context *context, uint8_t port_num, const struct ibv_wc *wc,
                        const struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
    memset(attr, 0, sizeof(*attr));
    attr->dlid = wc->slid;
    attr->sl = wc->sl;
    attr->src_path_bits = wc->dlid_path_bits;
    attr->port_num = port_num;
    if (port_num != 1) {
        errno = EINVAL;
        return -1;
    }
    if (!(wc->wc_flags & IBV_WC_GRH))
        return 0;
    attr->is_global = 1;
    return route_back(context, grh, &attr->grh);
}

SW_EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
                                  struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
    if (!sw_verbs_is_ours(context->device))
        return sw_stock()->init_ah_from_wc(context, port_num, wc, grh, attr);
    return init_from_wc(context, port_num, wc, grh, attr);
}

SW_EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
                                               struct ibv_grh *grh, uint8_t port_num)
{
    if (!sw_verbs_is_ours(pd->context->device))
        return sw_stock()->create_ah_from_wc(pd, wc, grh, port_num);
    struct ibv_ah_attr attr;
    return init_from_wc(pd->context, port_num, wc, grh, &attr) ? NULL : ibv_create_ah(pd, &attr);
}

/* Stock resolves by our ibv_query_gid and the kernel's neighbour table, which serves any device. */
SW_EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
                                          uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
    return sw_stock()->resolve_eth_l2_from_gid(context, attr, eth_mac, vid);
}
