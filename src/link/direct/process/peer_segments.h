/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The segments of a peer's memory: asked for, mapped, and taken out when their owner says that they
 * are gone. Access to them is in peer.h. Engine thread only.
 */
#ifndef SW_LINK_DIRECT_PROCESS_PEER_SEGMENTS_H
#define SW_LINK_DIRECT_PROCESS_PEER_SEGMENTS_H

#include <stdint.h>

struct sw_message;
struct sw_peer;
struct sw_peer_segment;

/* Asks the peer for those that are wanted, a few at a time. */
void sw_peer_segments_ask(struct sw_peer *peer);
/* The answer, with its descriptor; -1: the owner has refused. */
void sw_peer_segments_map(struct sw_peer *peer, const struct sw_message *in, int fd);
/* For who frees it: sw_peer_segment_free(). NULL: there is none with this number. */
struct sw_peer_segment *sw_peer_segments_take_out(struct sw_peer *peer, uint32_t id);

#endif
