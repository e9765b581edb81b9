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
    char host[40];         /* boot_id: one for each start of a kernel */
    uint64_t network;      /* the inode of its network namespace */
    uint32_t address;      /* IPv4 in network order, of an interface that has a device; 0: none */
    uint32_t has_loopback; /* 0 where --devices leaves it out */
};

void mpm_place_find(struct mpm_place *place);
/* This rank's address among these places; false: there is none by which all are reached. */
bool mpm_place_address(const struct mpm_place *places, uint32_t size, uint32_t rank,
                       char address[INET_ADDRSTRLEN]);

#endif
