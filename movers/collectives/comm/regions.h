/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registered buffers. To register memory and to end that takes longer than most operations, so
 * regions are kept, in the order of their use. A region is used again only where it is sure that
 * its pages still are those of the addresses:
 *
 *  - the memory is a shared mapping of files, and /proc/self/maps says the same device, inode and
 *    offset for each address as when it was registered. Pages of a file are the same whoever maps
 *    them. On Sidewire memory of the heap is such a mapping, too, while it is registered;
 *  - or the device registers on demand, and follows the addresses by itself.
 *
 * Other memory is registered for each operation: nothing public tells that private pages were
 * unmapped and mapped again.
 */
#ifndef SW_COLLECTIVES_REGIONS_H
#define SW_COLLECTIVES_REGIONS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "collectives/comm/mappings.h"
#include "common/base/list.h"

struct coll_region {
    struct list_node node;
    struct ibv_mr *mr;
    uint64_t begin, end;
    bool is_writable, is_on_demand, is_kept;
    uint32_t users;
    struct coll_mappings mappings;
};

struct coll_regions {
    struct ibv_pd *pd;
    struct coll_maps maps;
    bool has_on_demand;
    struct list kept; /* the newest first */
    uint32_t count;
    uint64_t bytes, bytes_max;
    uint64_t hits, misses, stale; /* for tests */
};

void coll_regions_open(struct coll_regions *regions, struct ibv_pd *pd);
/* None may have users. */
void coll_regions_close(struct coll_regions *regions);
/* With all rights, or, where `is_written` is false and the memory is read only, to be read. NULL
 * and errno: the device refuses. */
struct coll_region *coll_region_get(struct coll_regions *regions, const void *data, uint64_t bytes,
                                    bool is_written);
void coll_region_put(struct coll_regions *regions, struct coll_region *region);

static inline bool coll_region_has(const struct coll_region *region, uint64_t address,
                                   uint64_t bytes)
{
    return region && address >= region->begin && address <= region->end &&
           bytes <= region->end - address;
}

#endif
