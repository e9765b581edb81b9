/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes whose memory we use. */
#ifndef SW_LINK_DIRECT_PROCESS_PEER_H
#define SW_LINK_DIRECT_PROCESS_PEER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "device/rules/pub.h"

struct sw_proof;

enum sw_peer_state { SW_PEER_IDLE, SW_PEER_CONNECTING, SW_PEER_READY, SW_PEER_DEAD };

struct sw_peer_segment {
    struct sw_peer_segment *next;
    uint32_t id;
    _Atomic int state;   /* SW_SEGMENT_* */
    bool writable;       /* mapped so */
    bool wants_writable; /* asked for so */
    bool asked_again;    /* since it was not */
    uint8_t *base;       /* address of file offset `offset` */
    uint64_t offset, len_bytes;
    uint8_t *former; /* mapped to read alone before; remembered by queue pairs, perhaps */
};
enum { SW_SEGMENT_WANTED, SW_SEGMENT_ASKED, SW_SEGMENT_MAPPED, SW_SEGMENT_REFUSED };
#define SW_SEGMENT_BUCKETS 256u

struct sw_peer {
    uint32_t slot;
    bool self;
    atomic_int state;
    atomic_uint refs;
    int socket;
    int doorbell;
    struct sw_proof *proof; /* under way; or NULL */
    pid_t pid;
    atomic_uint refusals; /* in a row: it, or we, may not look into the other */
    bool can_map;
    atomic_bool can_cma;
    const struct sw_pub *pub;
    void *inbox;        /* the peer's, for us */
    uint64_t pub_bytes; /* of the tables, that are there */
    uint32_t inbox_blocks;
    _Atomic uint64_t retry_at_ns; /* next connection attempt; 0: none has failed yet */
    pthread_mutex_t lock;         /* segments */
    struct sw_peer_segment *segments[SW_SEGMENT_BUCKETS];
    atomic_bool segments_wanted;
    uint32_t asked; /* segments that are on their way; with the lock */
    struct sw_peer *next;
};

struct sw_peer *sw_peer_get(uint32_t slot); /* takes a reference; NULL: no memory */
void sw_peer_put(struct sw_peer *peer);
void sw_peer_ring(struct sw_peer *peer);
/* The same before there is something for it, which comes within some ten microseconds. */
void sw_peer_ring_ahead(struct sw_peer *peer);
/* Before a peer becomes ready: has the engine fetch the segments of its latest regions. */
void sw_peer_expect_segments(struct sw_peer *peer);
/* The mapping of a segment's bytes at `file_offset`, or NULL (asks the engine to fetch it). */
uint8_t *sw_peer_segment_at(struct sw_peer *peer, uint32_t id, uint64_t file_offset,
                            uint64_t len_bytes, bool writable, bool *refused);
void sw_peer_segment_free(struct sw_peer_segment *segment);
/* Waits until the process of a slot and this one have met, five seconds at most, and less where
 * others were waited for in vain (silence.h). Returns it with a reference; NULL: it is this one,
 * or nobody's. Call it without the lock of a QP: the engine makes the two meet, and it takes such
 * locks. */
struct sw_peer *sw_peer_meet(uint32_t slot);
/* Whether it is known that the process of a slot and this one may not have each other's memory
 * (proof.h). */
bool sw_peer_is_refused(uint32_t slot);
enum sw_standing {
    SW_STANDING_UNKNOWN,
    SW_STANDING_ACCEPTED,
    SW_STANDING_REFUSED,
    SW_STANDING_GONE
};
/* The same of a peer that is held, as far as it is known by now. */
enum sw_standing sw_peer_standing(struct sw_peer *peer);
/* True if it may be freed: gone or never reached, and no QP refers to it; direct.lock held. The
 * engine does it. */
bool sw_peer_unused(const struct sw_peer *peer);
void sw_peer_free(struct sw_peer *peer);
/* The process has ended, though its socket may not be closed yet. */
bool sw_peer_has_ended(const struct sw_peer *peer);

#endif
