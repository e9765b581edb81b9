/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections beside each other: whether there is room for one more, and who goes for it. One whose
 * host has not proved itself (no Connect yet, or no proof of its secret) is counted by the entries
 * of its queue, since these are memory. The oldest of them make room for the next.
 */
#ifndef SW_MOVERS_NVME_CROWD_H
#define SW_MOVERS_NVME_CROWD_H

#include <stdbool.h>
#include <stdint.h>

enum {
    NVT_CROWD_ENTRY_MIN = 64,        /* entries that a connection counts for at least */
    NVT_CROWD_OF_ADDRESS = 32 << 10, /* entries before proof: of one address, */
    NVT_CROWD_MAX = 64 << 10,        /* in all, */
    NVT_CROWD_ENDING = 128 << 10,    /* and with those that are ending */
};

struct nvt_guest {
    const char *address;
    uint32_t entries;
    uint64_t since_ns;
    bool is_proven, is_ending;
    void *user;
};

/* All zeroes but these to begin with: address and entries of who comes, places. */
struct nvt_crowd {
    const char *address;
    uint32_t entries, places;
    uint32_t count, count_of_address;               /* connections */
    uint32_t unproven, unproven_of_address, ending; /* entries */
    uint64_t since_ns, since_of_address_ns;
    void *oldest, *oldest_of_address; /* users; NULL: there is none */
};

void nvt_crowd_add(struct nvt_crowd *crowd, const struct nvt_guest *guest);
/* False: there is no room. `*leaves` is who has to go, or NULL. */
bool nvt_crowd_admits(const struct nvt_crowd *crowd, void **leaves);

#endif
