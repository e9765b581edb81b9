/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether any process of another host would hear us: UDP port 4791, and the port that queue pairs
 * are called at by TCP. The host's kernel says that both are closed, where nobody has them: by ICMP
 * and by a reset. A host that says nothing, or a firewall that drops both, is not known.
 */
#ifndef SW_LINK_DOOR_H
#define SW_LINK_DOOR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct sw_door {
    union ibv_gid source, dest;
    uint32_t ifindex;
    int fd; /* -1: none */
    uint64_t cookie;
    bool is_tcp;  /* UDP's is closed, and this is a call to the other one */
    bool is_vain; /* nothing more can be learned */
};

void sw_door_open(struct sw_door *door, const union ibv_gid *source, const union ibv_gid *dest,
                  uint32_t ifindex);
/* Knocks once more. Whether both are known to be closed. */
bool sw_door_knock(struct sw_door *door);
void sw_door_close(struct sw_door *door);

#endif
