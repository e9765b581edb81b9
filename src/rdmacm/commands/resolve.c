/* SPDX-License-Identifier: BSD-2-Clause */
/* Where an ID is, and the way to its peer. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "rdmacm/commands/command.h"
#include "rdmacm/connections/event.h"
#include "rdmacm/connections/resolving.h"
#include "rdmacm/connections/route.h"
#include "rdmacm/iwarp/iwarp.h"
#include "rdmacm/mads/agent.h"
#include "rdmacm/mads/ports.h"

/* Service ids of IP CM, as AF_IB addresses have them: rdma_cma.h's RDMA_IB_IP_PS_*. */
#define PORT_SPACE_MASK 0xffffffffffff0000ull

/* The port space that a port is taken from; 0: none fits. For AF_IB the service id names it. */
static uint32_t select_port_space(struct sw_ucm_id *id)
{
    static const uint32_t spaces[] = {RDMA_PS_IB, RDMA_PS_TCP, RDMA_PS_UDP};
    if (id->src.family != AF_IB)
        return id->port_space;
    struct sw_sockaddr_ib *address = &id->src.ib;
    uint64_t mask = be64toh(address->sid_mask) & PORT_SPACE_MASK;
    uint64_t sid = be64toh(address->sid) & mask;
    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++) {
        uint64_t space_sid = (uint64_t)spaces[i] << 16;
        if ((id->port_space != RDMA_PS_IB && id->port_space != spaces[i]) ||
            sid != (space_sid & mask))
            continue;
        address->sid = htobe64(space_sid | sw_address_port(&id->src));
        address->sid_mask = htobe64(PORT_SPACE_MASK | be64toh(address->sid_mask));
        return spaces[i];
    }
    return 0;
}

static int claim_port(struct sw_ucm_id *id)
{
    struct sw_cm_port_name name = {
        .space = select_port_space(id),
        .afonly = id->address_family_only,
        .reuse = id->reuse_address,
    };
    if (!name.space)
        return -EPROTONOSUPPORT;
    name.port = sw_address_port(&id->src);
    sw_address_to_gid(&id->src, name.address.s6_addr);
    int rc = sw_cm_port_claim(&name, &id->port);
    if (!rc)
        sw_address_set_port(&id->src, name.port);
    return rc;
}

/* Whether the source stands for no device: a loopback's address does as little as the wildcard,
 * also where the loopback has a device. The kernel has it so (cma_any_addr()), and libfabric looks
 * for devices by an ID that is bound to 127.0.0.1. Datagrams are the exception: librdmacm's
 * rsockets take the device of such an ID without a look, and crash on a kernel. */
static bool names_no_device(const struct sw_ucm_id *id)
{
    return sw_address_is_any(&id->src) ||
           (sw_address_is_loopback(&id->src) && id->port_space != RDMA_PS_UDP);
}

static int bind_checked(struct sw_ucm_id *id)
{
    if (sw_address_is_link_local(&id->src) && !id->src.in6.sin6_scope_id)
        return -EINVAL;
    int rc = names_no_device(id) ? 0 : sw_ucm_route_bind(id);
    if (rc)
        return rc;
    if (!id->address_family_only_set)
        id->address_family_only = id->src.family == AF_INET;
    id->dst.family = id->src.family;
    rc = claim_port(id);
    if (rc)
        id->dev = NULL;
    return rc;
}

int sw_ucm_bind_address(struct sw_ucm_id *id, const union sw_address *address)
{
    if (!sw_address_size(address))
        return -EAFNOSUPPORT;
    if (id->state != SW_UCM_IDLE)
        return -EINVAL;
    memset(&id->src, 0, sizeof(id->src));
    memcpy(&id->src, address, sw_address_size(address));
    int rc = bind_checked(id);
    if (!rc)
        id->state = SW_UCM_ADDR_BOUND;
    return rc;
}

/* Reads the addresses of old commands, in the room of a sockaddr_in6. */
static bool read_in6(const struct sockaddr_in6 *from, union sw_address *out)
{
    memset(out, 0, sizeof(*out));
    memcpy(out, from, sizeof(*from));
    return out->family == AF_INET || out->family == AF_INET6;
}

static bool read_storage(const struct __kernel_sockaddr_storage *from, size_t size,
                         union sw_address *out)
{
    memset(out, 0, sizeof(*out));
    memcpy(out, from, sizeof(*out) < sizeof(*from) ? sizeof(*out) : sizeof(*from));
    return size && size == sw_address_size(out);
}

int sw_ucm_bind_ip(struct sw_ucm_request *request)
{
    const struct rdma_ucm_bind_ip *in = &request->in.bind_ip;
    union sw_address address;
    struct sw_ucm_id *id;
    if (!read_in6(&in->addr, &address))
        return -EINVAL;
    int rc = sw_ucm_id_find(request->channel, in->id, &id);
    return rc ? rc : sw_ucm_bind_address(id, &address);
}

int sw_ucm_bind(struct sw_ucm_request *request)
{
    const struct rdma_ucm_bind *in = &request->in.bind;
    union sw_address address;
    struct sw_ucm_id *id;
    if (in->reserved || !read_storage(&in->addr, in->addr_size, &address))
        return -EINVAL;
    int rc = sw_ucm_id_find(request->channel, in->id, &id);
    return rc ? rc : sw_ucm_bind_address(id, &address);
}

/* An ID that is not bound takes the source given, or any. One that is bound stays so. */
static int prepare_source(struct sw_ucm_id *id, const union sw_address *src,
                          const union sw_address *dst)
{
    union sw_address any;
    if (id->state == SW_UCM_ADDR_BOUND)
        return 0;
    if (src->family)
        return sw_ucm_bind_address(id, src);
    memset(&any, 0, sizeof(any));
    any.family = dst->family;
    if (dst->family == AF_INET6)
        any.in6.sin6_scope_id = dst->in6.sin6_scope_id;
    else if (dst->family == AF_IB)
        any.ib.pkey = dst->ib.pkey;
    return sw_ucm_bind_address(id, &any);
}

static int resolve_address(struct sw_ucm_request *request, uint32_t handle,
                           const union sw_address *src, const union sw_address *dst,
                           uint32_t timeout_ms)
{
    struct sw_ucm_id *id;
    int status, rc = sw_ucm_id_find(request->channel, handle, &id);
    if (!rc)
        rc = prepare_source(id, src, dst);
    if (!rc && id->src.family != dst->family)
        rc = -EINVAL;
    if (rc)
        return rc;
    id->dst = *dst;
    const union sw_address before = id->src;
    const bool had_device = id->dev;
    rc = sw_ucm_route_resolve_address(id, &status);
    if (rc)
        return rc;
    if (!status && sw_ucm_resolving_begin(id, &before, had_device, timeout_ms))
        return 0;
    if (!status)
        id->state = SW_UCM_ADDR_RESOLVED;
    sw_ucm_event_tell(id, status ? SW_UCM_ADDR_ERROR_EVENT : SW_UCM_ADDR_RESOLVED_EVENT, status);
    return 0;
}

int sw_ucm_resolve_ip(struct sw_ucm_request *request)
{
    const struct rdma_ucm_resolve_ip *in = &request->in.resolve_ip;
    union sw_address src, dst;
    bool has_src = read_in6(&in->src_addr, &src);
    if ((src.family && !has_src) || !read_in6(&in->dst_addr, &dst))
        return -EINVAL;
    return resolve_address(request, in->id, &src, &dst, in->timeout_ms);
}

int sw_ucm_resolve_addr(struct sw_ucm_request *request)
{
    const struct rdma_ucm_resolve_addr *in = &request->in.resolve_addr;
    union sw_address src, dst;
    bool has_src = read_storage(&in->src_addr, in->src_size, &src);
    if (in->reserved || (in->src_size && !has_src) ||
        !read_storage(&in->dst_addr, in->dst_size, &dst))
        return -EINVAL;
    return resolve_address(request, in->id, &src, &dst, in->timeout_ms);
}

int sw_ucm_resolve_route(struct sw_ucm_request *request)
{
    const struct rdma_ucm_resolve_route *in = &request->in.resolve_route;
    struct sw_ucm_id *id;
    struct sw_cm_path path;
    int rc = sw_ucm_id_find_bound(request->channel, in->id, &id);
    if (rc)
        return rc;
    if (!in->timeout_ms || id->state != SW_UCM_ADDR_RESOLVED)
        return -EINVAL;
    sw_ucm_route_resolve(id);
    sw_ucm_route_path(id, &path);
    rc = sw_ucm_is_iwarp(id) ? 0 : sw_agent_reaches(&path);
    if (!rc)
        id->state = SW_UCM_ROUTE_RESOLVED;
    else
        id->has_path = false;
    sw_ucm_event_tell(id, rc ? SW_UCM_ROUTE_ERROR_EVENT : SW_UCM_ROUTE_RESOLVED_EVENT, rc);
    return 0;
}

/* Service records are kept by the subnet administrator of an InfiniBand fabric: no RoCE port has
 * one, and the kernel says so by the same errors. */
int sw_ucm_resolve_ib_service(struct sw_ucm_request *request)
{
    struct sw_ucm_id *id;
    int rc = sw_ucm_id_find(request->channel, request->in.resolve_ib_service.id, &id);
    if (rc)
        return rc;
    return id->dev && id->state == SW_UCM_ADDR_BOUND ? -EOPNOTSUPP : -EINVAL;
}
