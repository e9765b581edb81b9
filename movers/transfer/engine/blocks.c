/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/blocks.h"

#include <stdlib.h>
#include <string.h>

#include "transfer/engine/agent.h"
#include "transfer/engine/memory.h"
#include "transfer/engine/peer.h"

enum { BLOCKS_MAX = 1 << 26 };

/* How far a part reaches. */
struct reach {
    uint64_t address, bytes;
};

static bool extent_fits(const struct sw_xfer_extent *extent, uint64_t part_bytes)
{
    uint64_t last;
    if (!extent->bytes || !extent->count || extent->bytes > part_bytes ||
        extent->offset > part_bytes - extent->bytes)
        return false;
    if (__builtin_mul_overflow(extent->stride, extent->count - 1, &last))
        return false;
    return last <= part_bytes - extent->bytes - extent->offset;
}

static enum sw_xfer_status expand_extents(struct sw_xfer_blocks *blocks,
                                          const struct reach *reaches,
                                          const struct sw_xfer_extent *extents,
                                          uint32_t extents_count)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < extents_count; i++) {
        const struct sw_xfer_extent *extent = &extents[i];
        if (extent->part >= blocks->parts || !extent_fits(extent, reaches[extent->part].bytes))
            return SW_XFER_INVALID;
        if (extent->count > BLOCKS_MAX || (count += extent->count) > BLOCKS_MAX)
            return SW_XFER_NO_MEMORY;
    }
    if (!count)
        return SW_XFER_INVALID;
    blocks->all = malloc(count * sizeof(*blocks->all));
    if (!blocks->all)
        return SW_XFER_NO_MEMORY;
    for (uint32_t i = 0; i < extents_count; i++) {
        const struct sw_xfer_extent *extent = &extents[i];
        uint64_t address = reaches[extent->part].address + extent->offset;
        for (uint64_t k = 0; k < extent->count; k++, address += extent->stride)
            blocks->all[blocks->count++] = (struct xfe_block){
                .address = address, .bytes = extent->bytes, .part = extent->part};
        blocks->requests += xfc_requests_of(extent->bytes) * extent->count;
    }
    return blocks->requests > BLOCKS_MAX ? SW_XFER_NO_MEMORY : SW_XFER_OK;
}

static enum sw_xfer_status keep_blocks(struct sw_xfer_blocks *blocks, struct reach *reaches,
                                       const struct sw_xfer_extent *extents, uint32_t extents_count,
                                       struct sw_xfer_blocks **out)
{
    enum sw_xfer_status status = SW_XFER_NO_MEMORY;
    if (reaches)
        status = expand_extents(blocks, reaches, extents, extents_count);
    free(reaches);
    if (status) {
        free(blocks->all);
        free(blocks->memories);
        free(blocks->keys);
        free(blocks);
        return status;
    }
    for (uint32_t i = 0; !blocks->peer && i < blocks->parts; i++)
        blocks->memories[i]->uses++;
    if (blocks->peer)
        blocks->peer->uses++;
    list_append(&blocks->agent->blocks, &blocks->node);
    *out = blocks;
    return SW_XFER_OK;
}

enum sw_xfer_status sw_xfer_blocks_local(struct sw_xfer_agent *agent,
                                         struct sw_xfer_memory *const *memories,
                                         uint32_t memories_count,
                                         const struct sw_xfer_extent *extents,
                                         uint32_t extents_count, struct sw_xfer_blocks **out)
{
    if (xfe_is_forked(agent))
        return SW_XFER_FORKED;
    for (uint32_t i = 0; i < memories_count; i++)
        if (memories[i]->agent != agent)
            return SW_XFER_INVALID;
    if (!memories_count)
        return SW_XFER_INVALID;
    struct sw_xfer_blocks *blocks = calloc(1, sizeof(*blocks));
    struct reach *reaches = calloc(memories_count, sizeof(*reaches));
    if (blocks)
        blocks->memories = calloc(memories_count, sizeof(struct sw_xfer_memory *));
    if (!blocks || !reaches || !blocks->memories) {
        free(reaches);
        if (blocks)
            free(blocks->memories);
        free(blocks);
        return SW_XFER_NO_MEMORY;
    }
    blocks->agent = agent;
    blocks->parts = memories_count;
    blocks->rights = SW_XFER_MAY_READ | SW_XFER_MAY_WRITE;
    for (uint32_t i = 0; i < memories_count; i++) {
        blocks->memories[i] = memories[i];
        reaches[i] =
            (struct reach){.address = memories[i]->at.address, .bytes = memories[i]->at.bytes};
        if (!memories[i]->at.is_writable)
            blocks->rights = SW_XFER_MAY_READ;
    }
    return keep_blocks(blocks, reaches, extents, extents_count, out);
}

/* Rights are those of all regions that an extent is in. */
static uint32_t blocks_rights_of(const uint8_t *card, const struct xfw_card *header,
                                 const struct sw_xfer_extent *extents, uint32_t extents_count)
{
    uint32_t rights = SW_XFER_MAY_READ | SW_XFER_MAY_WRITE;
    for (uint32_t i = 0; i < extents_count; i++) {
        struct xfw_region region;
        if (extents[i].part >= header->regions_count)
            continue; /* refused when it is expanded */
        xfw_get_region(card, header, extents[i].part, &region);
        rights &= region.rights;
    }
    return rights;
}

enum sw_xfer_status sw_xfer_blocks_remote(struct sw_xfer_peer *peer, const void *card,
                                          size_t card_bytes, const struct sw_xfer_extent *extents,
                                          uint32_t extents_count, struct sw_xfer_blocks **out)
{
    struct xfw_card header;
    if (xfe_is_forked(peer->agent))
        return SW_XFER_FORKED;
    const enum sw_xfer_status status = xfw_get_card(card, card_bytes, &header);
    if (status)
        return status;
    if (memcmp(header.instance, peer->card.instance, sizeof(header.instance)) != 0)
        return SW_XFER_INSTANCE;
    if (!header.regions_count)
        return SW_XFER_INVALID;
    struct sw_xfer_blocks *blocks = calloc(1, sizeof(*blocks));
    struct reach *reaches = calloc(header.regions_count, sizeof(*reaches));
    if (blocks)
        blocks->keys = calloc(header.regions_count, sizeof(*blocks->keys));
    if (!blocks || !reaches || !blocks->keys) {
        free(reaches);
        if (blocks)
            free(blocks->keys);
        free(blocks);
        return SW_XFER_NO_MEMORY;
    }
    blocks->agent = peer->agent;
    blocks->peer = peer;
    blocks->parts = header.regions_count;
    blocks->rights = blocks_rights_of(card, &header, extents, extents_count);
    for (uint32_t i = 0; i < header.regions_count; i++) {
        struct xfw_region region;
        xfw_get_region(card, &header, i, &region);
        memcpy(blocks->keys[i], region.keys, sizeof(region.keys));
        reaches[i] = (struct reach){.address = region.address, .bytes = region.bytes};
    }
    return keep_blocks(blocks, reaches, extents, extents_count, out);
}

uint32_t sw_xfer_blocks_count(const struct sw_xfer_blocks *blocks)
{
    return blocks->count;
}

void xfe_blocks_free(struct sw_xfer_blocks *blocks)
{
    for (uint32_t i = 0; !blocks->peer && i < blocks->parts; i++)
        blocks->memories[i]->uses--;
    if (blocks->peer)
        blocks->peer->uses--;
    list_remove(&blocks->node);
    free(blocks->all);
    free(blocks->memories);
    free(blocks->keys);
    free(blocks);
}

enum sw_xfer_status sw_xfer_blocks_release(struct sw_xfer_blocks *blocks)
{
    if (blocks->uses)
        return SW_XFER_BUSY;
    xfe_blocks_free(blocks);
    return SW_XFER_OK;
}
