/* SPDX-License-Identifier: BSD-2-Clause */
/* Cards as users make and read them. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "transfer/engine/agent.h"
#include "transfer/engine/lease.h"
#include "transfer/engine/memory.h"
#include "transfer/wire/card.h"

static void take_address(const struct sockaddr_storage *from, struct xfw_address *to)
{
    *to = (struct xfw_address){.family = from->ss_family == AF_INET6 ? 6 : 4};
    if (from->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;
        to->port = ntohs(in6->sin6_port);
        memcpy(to->bytes, &in6->sin6_addr, 16);
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)from;
        to->port = ntohs(in->sin_port);
        memcpy(to->bytes, &in->sin_addr, 4);
    }
}

enum sw_xfer_status sw_xfer_card_make(const struct sw_xfer_agent *agent,
                                      struct sw_xfer_lease *const *leases, uint32_t leases_count,
                                      void *bytes, size_t capacity, size_t *length)
{
    struct xfw_card card = {.version = agent->rails_count > 1 ? XFW_VERSION_RAILS : XFW_VERSION,
                            .layout = agent->options.layout,
                            .addresses_count = agent->rails_count,
                            .regions_count = leases_count};
    if (xfe_is_forked(agent))
        return SW_XFER_FORKED;
    if (!agent->rails_count || leases_count > SW_XFER_REGIONS_MAX)
        return SW_XFER_INVALID;
    const size_t needed = xfw_card_bytes(&card);
    if (bytes && capacity < needed)
        return SW_XFER_INVALID;
    memcpy(card.instance, agent->instance, sizeof(card.instance));
    for (uint32_t i = 0; i < agent->rails_count; i++)
        take_address(&agent->rails[i].listener.address, &card.addresses[i]);
    for (uint32_t i = 0; i < leases_count; i++)
        if (leases[i]->memory->agent != agent || !sw_xfer_lease_is_granted(leases[i]))
            return SW_XFER_INVALID;
    if (bytes)
        xfw_put_card(bytes, &card);
    for (uint32_t i = 0; bytes && i < leases_count; i++) {
        struct xfw_region region = {
            .address = leases[i]->address, .bytes = leases[i]->bytes, .rights = leases[i]->rights};
        memcpy(region.name, leases[i]->name, sizeof(region.name));
        for (uint32_t k = 0; k < agent->rails_count; k++)
            region.keys[k] = xfe_lease_key(leases[i], k);
        xfw_put_region(bytes, &card, i, &region);
    }
    if (bytes)
        xfw_seal_card(bytes, &card);
    *length = needed;
    return SW_XFER_OK;
}

static void write_address(const struct xfw_address *from, char *to, size_t to_bytes)
{
    char text[INET6_ADDRSTRLEN] = "?";
    inet_ntop(from->family == 6 ? AF_INET6 : AF_INET, from->bytes, text, sizeof(text));
    snprintf(to, to_bytes, "%s port %u", text, from->port);
}

enum sw_xfer_status sw_xfer_card_read(const void *bytes, size_t length, struct sw_xfer_card *card)
{
    struct xfw_card got;
    const enum sw_xfer_status status = xfw_get_card(bytes, length, &got);
    if (status)
        return status;
    memset(card, 0, sizeof(*card));
    card->version = got.version;
    memcpy(card->instance, got.instance, sizeof(card->instance));
    card->layout = got.layout;
    card->regions_count = got.regions_count;
    card->addresses_count = got.addresses_count;
    for (uint32_t i = 0; i < got.addresses_count; i++)
        write_address(&got.addresses[i], card->addresses[i], sizeof(card->addresses[i]));
    return SW_XFER_OK;
}

enum sw_xfer_status sw_xfer_card_region(const void *bytes, size_t length, uint32_t index,
                                        struct sw_xfer_region *region)
{
    struct xfw_card card;
    struct xfw_region got;
    const enum sw_xfer_status status = xfw_get_card(bytes, length, &card);
    if (status)
        return status;
    if (index >= card.regions_count)
        return SW_XFER_INVALID;
    xfw_get_region(bytes, &card, index, &got);
    *region = (struct sw_xfer_region){.bytes = got.bytes, .rights = got.rights};
    memcpy(region->name, got.name, sizeof(region->name));
    return SW_XFER_OK;
}

enum sw_xfer_status sw_xfer_card_find(const void *bytes, size_t length, const char *name,
                                      uint32_t *index)
{
    struct xfw_card card;
    struct xfw_region got;
    const enum sw_xfer_status status = xfw_get_card(bytes, length, &card);
    if (status)
        return status;
    for (uint32_t i = 0; i < card.regions_count; i++) {
        xfw_get_region(bytes, &card, i, &got);
        if (strcmp(got.name, name) != 0)
            continue;
        *index = i;
        return SW_XFER_OK;
    }
    return SW_XFER_INVALID;
}
