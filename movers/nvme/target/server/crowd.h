/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections beside each other: whether there is room for one more, and who goes for it. One whose
 * host has not proved itself (no Connect yet, or no proof of its secret) is counted by the entries
 * of its queue, since these are memory. The oldest of the address that has most of them makes room
 * for the next. Connections that are ending count as well, but an address that has next to nothing
 * gets in beside them.
 *
 * An I/O queue is expected while its address has a controller that lacks one: a host makes all the
 * connections of a controller before it says the first Connect, and has none of them if it does
 * not get all. So expected ones are counted by themselves: an address may have all queues of a host
 * of the longest ones, or of eight hosts of usual ones. All together leave room in the completion
 * queue for others.
 */
#ifndef SW_MOVERS_NVME_CROWD_H
#define SW_MOVERS_NVME_CROWD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/serve/share.h"

struct sockaddr;

enum {
    NVT_CROWD_ADDRESSES = 8192,
    NVT_CROWD_CHAINS = 1024,
    NVT_CROWD_ENTRY_MIN = 64,        /* entries that a connection counts for at least */
    NVT_CROWD_OF_ADDRESS = 32 << 10, /* entries before proof: of one address, */
    NVT_CROWD_MAX = 64 << 10,        /* in all, */
    NVT_CROWD_ENDING_OF_ADDRESS = 64 << 10,
    NVT_CROWD_ENDING = 128 << 10,             /* both with those that are ending, */
    NVT_CROWD_SPARE = 2 << 10,                /* but an address has these */
    NVT_CROWD_BOUND = 256 << 10,              /* up to that */
    NVT_CROWD_EXPECTED_OF_ADDRESS = 64 << 10, /* the same of those that are expected */
    NVT_CROWD_EXPECTED_MAX = 512 << 10,
    NVT_CROWD_EXPECTED_ENDING_OF_ADDRESS = 128 << 10,
    NVT_CROWD_EXPECTED_ENDING = 640 << 10,
    NVT_CROWD_EXPECTED_SPARE = 8 << 10,
    NVT_CROWD_EXPECTED_BOUND = 768 << 10,
};

struct nvt_guest {
    const char *address;
    uint32_t entries;
    uint32_t completions;   /* of the queue that who comes would have them of, too */
    uint32_t io_queues_max; /* of an admin queue: what its host may have beside it */
    uint64_t since_ns;
    bool is_io, is_expected, is_proven, is_ending;
    void *user;
};

enum nvt_crowd_kind { NVT_CROWD_STRANGE, NVT_CROWD_AWAITED, NVT_CROWD_KINDS }; /* expected or not */

/* Entries before proof. */
struct nvt_crowd_share {
    struct mover_share there;
    uint64_t ending;
};

struct nvt_crowd_address {
    const char *address;
    uint32_t next;                /* of its chain; 0: the last one */
    uint32_t count, completions;  /* count: connections */
    uint32_t io_places, io_taken; /* what its controllers may have, and have */
    struct nvt_crowd_share unproven[NVT_CROWD_KINDS];
};

/* Cleared, but these to begin with: address, entries, completions and is_io of who comes, places,
 * completions_max, now_ns. */
struct nvt_crowd {
    const char *address;
    uint32_t entries, places, completions, completions_max;
    bool is_io;
    uint64_t now_ns;
    uint32_t count; /* connections */
    uint64_t all_completions;
    struct nvt_crowd_share unproven[NVT_CROWD_KINDS];
    uint32_t address_count, chains[NVT_CROWD_CHAINS];
    struct nvt_crowd_address addresses[1 + NVT_CROWD_ADDRESSES]; /* [0] is nobody's */
};

/* The text that all connections of a host have in common. For IPv6 that is the /64: a host has as
 * many addresses there as it likes, and may come from another one each time. */
void nvt_crowd_address(const struct sockaddr *from, char *text, size_t size);
/* To begin with. The addresses have 0.8 MiB, which each call would clear in vain. */
void nvt_crowd_clear(struct nvt_crowd *crowd);
void nvt_crowd_add(struct nvt_crowd *crowd, const struct nvt_guest *guest);
bool nvt_crowd_expects(struct nvt_crowd *crowd);
/* False: there is no room. `*leaves` is who has to go, or NULL. */
bool nvt_crowd_admits(struct nvt_crowd *crowd, void **leaves);

#endif
