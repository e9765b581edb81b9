/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the ranks of a communicator are, and by which address of its own each is reached. */
#ifndef SW_BINDINGS_MPI_WHERE_H
#define SW_BINDINGS_MPI_WHERE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

/* What a rank says of itself. Two with the same `host` and `network` reach each other by the
 * loopback. */
struct mpm_place {
    char host[40];          /* boot_id: one for each start of a kernel */
    uint64_t network;       /* the inode of its network namespace */
    uint32_t address;       /* IPv4 in network order, of an interface that has a device; 0: none */
    uint32_t has_loopback;  /* 0 where --devices leaves it out */
    uint64_t processors[4]; /* a bit for each that it may run on, by its number modulo 256 */
};

void mpm_place_find(struct mpm_place *place);
/* This rank's address among these places; false: there is none by which all are reached. */
bool mpm_place_address(const struct mpm_place *places, uint32_t size, uint32_t rank,
                       char address[INET_ADDRSTRLEN]);
/* Whether ranks of this one's host share processors, and have to give way to each other: those that
 * they may run on, all together, are fewer than they are. */
bool mpm_places_are_short(const struct mpm_place *places, uint32_t size, uint32_t rank);

#endif
