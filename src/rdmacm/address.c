/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/address.h"

#include <endian.h>
#include <string.h>

size_t sw_address_size(const union sw_address *address)
{
    switch (address->family) {
    case AF_INET:
        return sizeof(address->in);
    case AF_INET6:
        return sizeof(address->in6);
    case AF_IB:
        return sizeof(address->ib);
    default:
        return 0;
    }
}

static bool address_is_zero(const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i])
            return false;
    return true;
}

bool sw_address_is_any(const union sw_address *address)
{
    switch (address->family) {
    case AF_INET:
        return address->in.sin_addr.s_addr == 0;
    case AF_INET6:
        return address_is_zero(address->in6.sin6_addr.s6_addr, 16);
    case AF_IB:
        return address_is_zero(address->ib.gid, 16);
    default:
        return false;
    }
}

bool sw_address_is_loopback(const union sw_address *address)
{
    switch (address->family) {
    case AF_INET:
        return ntohl(address->in.sin_addr.s_addr) >> 24 == 127;
    case AF_INET6:
        return IN6_IS_ADDR_LOOPBACK(&address->in6.sin6_addr);
    case AF_IB:
        return address_is_zero(address->ib.gid, 15) && address->ib.gid[15] == 1;
    default:
        return false;
    }
}

bool sw_address_is_link_local(const union sw_address *address)
{
    return address->family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&address->in6.sin6_addr);
}

void sw_address_set_loopback(union sw_address *address)
{
    if (address->family == AF_INET)
        address->in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else if (address->family == AF_INET6)
        address->in6.sin6_addr = in6addr_loopback;
}

uint16_t sw_address_port(const union sw_address *address)
{
    switch (address->family) {
    case AF_INET:
        return ntohs(address->in.sin_port);
    case AF_INET6:
        return ntohs(address->in6.sin6_port);
    case AF_IB:
        return (uint16_t)(be64toh(address->ib.sid) & be64toh(address->ib.sid_mask));
    default:
        return 0;
    }
}

void sw_address_set_port(union sw_address *address, uint16_t port)
{
    if (address->family == AF_INET) {
        address->in.sin_port = htons(port);
    } else if (address->family == AF_INET6) {
        address->in6.sin6_port = htons(port);
    } else if (address->family == AF_IB) {
        uint64_t given = be64toh(address->ib.sid) & be64toh(address->ib.sid_mask);
        address->ib.sid = htobe64((given & ~(uint64_t)UINT16_MAX) | port);
        address->ib.sid_mask = UINT64_MAX;
    }
}

void sw_address_to_gid(const union sw_address *address, uint8_t gid[16])
{
    memset(gid, 0, 16);
    if (address->family == AF_INET) {
        gid[10] = gid[11] = 0xff;
        memcpy(gid + 12, &address->in.sin_addr, 4);
    } else if (address->family == AF_INET6) {
        memcpy(gid, &address->in6.sin6_addr, 16);
    } else if (address->family == AF_IB) {
        memcpy(gid, address->ib.gid, 16);
    }
}

bool sw_address_is_same_host(const union sw_address *one, const union sw_address *other)
{
    uint8_t gids[2][16];
    if (one->family != other->family)
        return false;
    sw_address_to_gid(one, gids[0]);
    sw_address_to_gid(other, gids[1]);
    if (memcmp(gids[0], gids[1], 16))
        return false;
    return !sw_address_is_link_local(one) || one->in6.sin6_scope_id == other->in6.sin6_scope_id;
}

uint64_t sw_address_service_id(const union sw_address *address, uint32_t port_space)
{
    if (address->family == AF_IB)
        return be64toh(address->ib.sid);
    return ((uint64_t)port_space << 16) + sw_address_port(address);
}
