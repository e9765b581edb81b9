/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The engine's side of the control protocol: how two processes meet, prove that they may look into
 * each other, and hand out memory.
 */
#ifndef SW_LINK_DIRECT_PROCESS_ATTACH_H
#define SW_LINK_DIRECT_PROCESS_ATTACH_H

#include <stdbool.h>
#include <stdint.h>

#include "link/direct/process/inbox.h"
#include "link/direct/process/peer.h"

uint64_t sw_attach_step(uint64_t now_ns); /* connects, asks for segments; when to call again
                                             (UINT64_MAX: when kicked) */
void sw_attach_greet(int fd);             /* it has proven that it may ask (newcomer.h) */
void sw_attach_end_proof(struct sw_peer *peer);
void sw_attach_from_client(struct sw_inbox *inbox);
void sw_attach_from_peer(struct sw_peer *peer);
bool sw_attach_has_hung_up(int fd);
/* For who waits for a peer that is ready: whether its process has ended, which the engine may have
 * got no processor to see. It counts as dead from then on. */
bool sw_attach_is_gone(struct sw_peer *peer);
void sw_attach_segment_gone(uint32_t id);
struct sw_join;
bool sw_attach_join(struct sw_peer *peer, const struct sw_join *join); /* false: not now */

#endif
