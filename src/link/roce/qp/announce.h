/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a message follows what the peer does to memory by itself. A storage target's WRITE is
 * followed by a SEND: the program waits for that one's completion, and polls. A WRITE that nothing
 * follows is noticed by looking at the memory, so the engine must receive it (handoff.h).
 *
 * Some requests in a row that were followed by messages make this connection one of the first kind.
 * One that is not followed for a while ends that, and so does one that nobody polled for: programs
 * may look at their memory before they poll for what follows, and pay a millisecond for it then. So
 * from then on many more in a row are asked for.
 *
 * No clock, no system call: times are given.
 */
#ifndef SW_LINK_ROCE_QP_ANNOUNCE_H
#define SW_LINK_ROCE_QP_ANNOUNCE_H

#include <stdbool.h>
#include <stdint.h>

/* A request that nothing has followed for so long is not announced. */
#define SW_ANNOUNCE_WAIT_NS 1000000u

struct sw_announce {
    uint64_t open_ns; /* when the first came that no message has followed yet; 0: there is none */
    uint32_t rounds;  /* requests in a row that messages followed */
    bool was_unattended; /* one came while nobody polled */
};

/* The peer has reached for memory. `is_attended`: a program polls. Returns
 * whether a message is expected to follow. */
bool sw_announce_request(struct sw_announce *announce, bool is_attended, uint64_t now_ns);
/* A message of the peer has completed a receive. */
void sw_announce_message(struct sw_announce *announce);

#endif
