/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/regions.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    KEPT_MAX = 64,
    SHARE_OF_MEMORY = 4, /* at most a quarter of the host's is kept */
    READ_RIGHTS = IBV_ACCESS_REMOTE_READ,
    ALL_RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
};

static uint64_t regions_page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static bool has_on_demand(struct ibv_context *verbs)
{
    const uint32_t wanted = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
    struct ibv_device_attr_ex attr;
    return !ibv_query_device_ex(verbs, NULL, &attr) &&
           attr.odp_caps.general_caps & IBV_ODP_SUPPORT &&
           (attr.odp_caps.per_transport_caps.rc_odp_caps & wanted) == wanted;
}

void coll_regions_open(struct coll_regions *regions, struct ibv_pd *pd)
{
    *regions = (struct coll_regions){.pd = pd,
                                     .has_on_demand = has_on_demand(pd->context),
                                     .bytes_max = (uint64_t)sysconf(_SC_PHYS_PAGES) /
                                                  SHARE_OF_MEMORY * regions_page_bytes()};
    list_init(&regions->kept);
    coll_maps_open(&regions->maps);
}

static void free_region(struct coll_region *region)
{
    ibv_dereg_mr(region->mr);
    free(region);
}

static void drop_region(struct coll_regions *regions, struct coll_region *region)
{
    assert(region->is_kept);
    list_remove(&region->node);
    regions->count--;
    regions->bytes -= region->end - region->begin;
    region->is_kept = false;
    if (!region->users)
        free_region(region);
}

void coll_regions_close(struct coll_regions *regions)
{
    struct list_node *first;
    if (!regions->pd)
        return;
    while ((first = list_first(&regions->kept)))
        drop_region(regions, LIST_MEMBER(first, struct coll_region, node));
    coll_maps_close(&regions->maps);
    regions->pd = NULL;
}

static bool is_region_fresh(struct coll_regions *regions, const struct coll_region *region)
{
    struct coll_mappings now;
    return region->is_on_demand ||
           (coll_maps_look(&regions->maps, region->begin, region->end, &now) &&
            coll_mappings_are_same(&now, &region->mappings));
}

static struct coll_region *find_region(struct coll_regions *regions, uint64_t address,
                                       uint64_t bytes, bool is_written)
{
    struct list_node *at, *after;
    for (at = list_first(&regions->kept); at; at = after) {
        struct coll_region *region = LIST_MEMBER(at, struct coll_region, node);
        after = list_after(&regions->kept, at);
        if (!coll_region_has(region, address, bytes) || (is_written && !region->is_writable))
            continue;
        if (is_region_fresh(regions, region))
            return region;
        regions->stale++;
        drop_region(regions, region);
    }
    return NULL;
}

/* Memory that can only be read is registered to be read. */
static struct coll_region *make_region(struct coll_regions *regions, uint64_t begin, uint64_t end,
                                       bool is_written, unsigned more)
{
    struct coll_region *region = calloc(1, sizeof(*region));
    if (!region)
        return NULL;
    *region = (struct coll_region){
        .begin = begin, .end = end, .is_writable = true, .is_on_demand = more != 0};
    void *data = (void *)(uintptr_t)begin;
    region->mr = ibv_reg_mr(regions->pd, data, end - begin, ALL_RIGHTS | more);
    if (!region->mr && !is_written) {
        region->is_writable = false;
        region->mr = ibv_reg_mr(regions->pd, data, end - begin, READ_RIGHTS | more);
    }
    if (region->mr)
        return region;
    free(region);
    return NULL;
}

/* The ones that were not used for the longest time make room. */
static void make_room(struct coll_regions *regions)
{
    struct list_node *at = regions->kept.head.previous, *before;
    for (; at != &regions->kept.head; at = before) {
        struct coll_region *region = LIST_MEMBER(at, struct coll_region, node);
        before = at->previous;
        if (regions->count <= KEPT_MAX && regions->bytes <= regions->bytes_max)
            return;
        if (!region->users)
            drop_region(regions, region);
    }
}

static void keep_region(struct coll_regions *regions, struct coll_region *region)
{
    region->is_kept = true;
    list_insert_behind(&regions->kept.head, &region->node);
    regions->count++;
    regions->bytes += region->end - region->begin;
}

/* Memory that the program has given back is not held for longer than a few operations. */
static void sweep_oldest(struct coll_regions *regions)
{
    if (list_is_empty(&regions->kept))
        return;
    struct coll_region *oldest = LIST_MEMBER(regions->kept.head.previous, struct coll_region, node);
    if (!oldest->users && !is_region_fresh(regions, oldest)) {
        regions->stale++;
        drop_region(regions, oldest);
    }
}

/* Whole pages: a part of a page may be reached by a longer way. */
static struct coll_region *register_pages(struct coll_regions *regions, uint64_t begin,
                                          uint64_t end, bool is_written)
{
    struct coll_region *region = make_region(regions, begin, end, is_written, 0);
    if (region && coll_maps_look(&regions->maps, begin, end, &region->mappings)) {
        keep_region(regions, region);
        return region;
    }
    if (!region && errno == EFAULT) /* on demand it is registered though it is not there */
        return NULL;
    struct coll_region *followed =
        regions->has_on_demand ? make_region(regions, begin, end, is_written, IBV_ACCESS_ON_DEMAND)
                               : NULL;
    if (!followed)
        return region;
    followed->is_writable &= !region || region->is_writable;
    keep_region(regions, followed);
    if (region)
        free_region(region);
    return followed;
}

struct coll_region *coll_region_get(struct coll_regions *regions, const void *data, uint64_t bytes,
                                    bool is_written)
{
    const uint64_t address = (uintptr_t)data, page = regions_page_bytes();
    struct coll_region *region = find_region(regions, address, bytes, is_written);
    if (region) {
        regions->hits++;
        list_remove(&region->node);
        list_insert_behind(&regions->kept.head, &region->node);
    } else {
        regions->misses++;
        sweep_oldest(regions);
        region = register_pages(regions, address / page * page,
                                (address + bytes + page - 1) / page * page, is_written);
    }
    if (!region)
        return NULL;
    region->users++;
    make_room(regions);
    return region;
}

void coll_region_put(struct coll_regions *regions, struct coll_region *region)
{
    (void)regions;
    assert(region->users);
    if (!--region->users && !region->is_kept)
        free_region(region);
}
