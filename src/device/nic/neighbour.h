/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel's table of neighbours: who is reached by which hardware address (rtnetlink(7)). */
#ifndef SW_DEVICE_NIC_NEIGHBOUR_H
#define SW_DEVICE_NIC_NEIGHBOUR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

/* The hardware address of a neighbour at this interface. false: the kernel does not know it, since
 * nothing was sent there lately, or it is behind a router. Sends nothing to anybody. */
bool sw_neighbour_find(unsigned int ifindex, const union ibv_gid *address, uint8_t mac[6]);

/* Whether packets to an address can leave from here, as the kernel's routes and its table say. */
enum sw_neighbour_state {
    SW_NEIGHBOUR_KNOWN,  /* the next hop's hardware address is known, none is needed, or the kernel
                            does not say */
    SW_NEIGHBOUR_ASKED,  /* the kernel is asking for it */
    SW_NEIGHBOUR_ABSENT, /* nobody has asked, or nobody has answered */
};

/* From this source, and by this interface where the address is a link-local one. Sends nothing. */
enum sw_neighbour_state sw_neighbour_look(unsigned int ifindex, const union ibv_gid *source,
                                          const union ibv_gid *dest);
/* Has the kernel ask for the next hop: by a datagram that goes no farther and that every receiver
 * drops, to the port that packets go to, so a filter that lets them out lets it out. False: it is
 * not let out, so nothing can be said of the neighbour. */
bool sw_neighbour_ask(unsigned int ifindex, const union ibv_gid *source, const union ibv_gid *dest);

#endif
