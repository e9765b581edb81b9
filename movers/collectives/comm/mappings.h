/* SPDX-License-Identifier: BSD-2-Clause */
/* Which pages of which files a range of addresses has: /proc/self/maps. */
#ifndef SW_COLLECTIVES_MAPPINGS_H
#define SW_COLLECTIVES_MAPPINGS_H

#include <stdbool.h>
#include <stdint.h>

enum { COLL_MAPPINGS_MAX = 8 };

struct coll_mapping { /* shared, of a file */
    uint64_t begin, end, offset, inode;
    uint32_t major, minor;
};

struct coll_mappings {
    uint32_t count;
    struct coll_mapping at[COLL_MAPPINGS_MAX];
};

struct coll_maps {
    int fd;
    bool has_query; /* the kernel answers for one address: PROCMAP_QUERY of Linux 6.11 */
};

void coll_maps_open(struct coll_maps *maps);
void coll_maps_close(struct coll_maps *maps);
/* True: all of the range is shared mappings of files, few enough to be remembered. */
bool coll_maps_look(struct coll_maps *maps, uint64_t begin, uint64_t end,
                    struct coll_mappings *mappings);
bool coll_mappings_are_same(const struct coll_mappings *a, const struct coll_mappings *b);

#endif
