/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether any process of another host would hear us: UDP port 4791, and the port that queue pairs
 * are called at by TCP. The host's kernel says that both are closed, where nobody has them: by ICMP
 * and by a reset. A host that says nothing, or a firewall that drops both, is not known.
 *
 * The port is probed by a whole packet of RoCE: an adapter that takes such packets past its
 * kernel takes this one, too, where it might leave another datagram to the kernel.
 */
#ifndef SW_LINK_DOOR_H
#define SW_LINK_DOOR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire/mad.h"

struct sw_door {
    union ibv_gid source, dest;
    uint32_t ifindex;
    int fd; /* -1: none */
    uint64_t cookie;
    bool is_tcp; /* UDP's is closed, and this is a call to the other one */
};

/* Sends the message from a socket of its own. False: it has not left. */
bool sw_door_probe(struct sw_door *door, const uint8_t mad[SW_MAD_BYTES]);
/* Whether both are known to be closed. The next look may tell what is not known yet. */
bool sw_door_look(struct sw_door *door);
void sw_door_close(struct sw_door *door);

#endif
