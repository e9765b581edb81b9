/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets that came after a gap, kept until the gap is filled (selective repeat), in slots of a
 * pool that the responder's user provides and may share among the QPs that one lock or thread owns.
 * A long payload stays where it is if its memory can be held, others are copied. One holds no more
 * slots than are free, so half of the pool at most. No slot: the packet is as good as lost.
 */
#ifndef SW_TRANSPORT_EARLY_H
#define SW_TRANSPORT_EARLY_H

#include "transport/emission.h"
#include "transport/seq.h"
#include "wire/run.h"

enum { SW_EARLY_PAYLOAD_MAX = 4096, SW_EARLY_HOLD_MIN = 256 /* bytes of a long payload */ };

struct sw_early_slot {
    struct sw_packet packet;
    uint16_t next; /* free list */
};

/* By themselves: slots are looked at more often than copies. */
struct sw_early_copy {
    uint8_t payload[SW_EARLY_PAYLOAD_MAX];
};

struct sw_early_pool {
    struct sw_early_slot *slots;
    struct sw_early_copy *copies; /* of each slot */
    uint16_t count, free_count, free_head;
};

/* At most 65534 of both; the memory stays the user's. */
void sw_early_pool_init(struct sw_early_pool *pool, struct sw_early_slot *slots,
                        struct sw_early_copy *copies, uint16_t count);

/* What one responder keeps: [base, base + SW_FLIGHT_PACKETS), where base is the PSN it waits for.
 */
struct sw_early {
    struct sw_early_pool *pool; /* NULL: nothing is kept */
    uint32_t count;
    uint32_t end;  /* all that is kept lies before it */
    uint16_t lent; /* the slot that was taken out last */
    uint64_t kept[SW_FLIGHT_PACKETS / 64];
    uint16_t slots[SW_FLIGHT_PACKETS];
};

void sw_early_init(struct sw_early *early, struct sw_early_pool *pool);

bool sw_early_has(const struct sw_early *early, uint32_t base, uint32_t seq);

/* The first that is kept; there must be one. */
uint32_t sw_early_first(const struct sw_early *early, uint32_t base);

/* Keeps the packet. false: no room, or it is there already. */
bool sw_early_keep(struct sw_early *early, uint32_t base, uint32_t seq,
                   const struct sw_packet *packet);

/* Takes out the packet at `seq`, if it is there; it is valid until the next call. */
bool sw_early_take(struct sw_early *early, uint32_t seq, struct sw_packet *out);

/* The run (wire/run.h) that is kept from `seq` on, its packets lying as they came; any of them may
 * ask for an ACK. They stay kept.
 * false: there are not two of them. */
bool sw_early_run(const struct sw_early *early, uint32_t seq, struct sw_packet_run *out);

/* Gives back what lies before `to`. */
void sw_early_drop(struct sw_early *early, uint32_t from, uint32_t to);

/* Gives all slots back. */
void sw_early_clear(struct sw_early *early);

/* What came after `base`: bit i is base + 1 + i. Returns the bytes used, a multiple of 4. */
uint32_t sw_early_bitmap(const struct sw_early *early, uint32_t base,
                         uint8_t bytes[SW_EMISSION_BYTES]);

#endif
