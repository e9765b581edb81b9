/* SPDX-License-Identifier: BSD-2-Clause */
/* One machine alone, spoken to packet by packet. */
#ifndef SW_TESTS_TRANSPORT_RIG_H
#define SW_TESTS_TRANSPORT_RIG_H

#include "transport/requester.h"
#include "transport/responder.h"

enum { RIG_ENTRIES = 16, RIG_MTU = 1024, RIG_SLOTS = 16, RIG_PSN = 100 };
enum { RIG_ACK = 0x1f, RIG_NAK_PSN = 0x60, RIG_NAK_INVALID = 0x61, RIG_NAK_ACCESS = 0x62 };

struct rig {
    struct sw_requester r;
    struct sw_request ring[RIG_ENTRIES];
    struct sw_responder p;
    struct sw_early_pool pool;
    struct sw_early_slot slots[RIG_SLOTS];
    struct sw_early_copy copies[RIG_SLOTS];
    uint64_t now_ns;
    struct sw_emission out;
    struct sw_progress progress; /* of the last rig_answer(), rig_tick() */
    struct sw_demand demand;     /* of the last rig_request() */
    uint8_t bytes[4096];
};

struct sw_requester_config rig_requester_config(void);
struct sw_responder_config rig_responder_config(void);

/* Both machines with these configurations; NULL: the defaults above. */
void rig_start(struct rig *rig, const struct sw_requester_config *requester,
               const struct sw_responder_config *responder);
/* A requester that offers selective repeat, or does not; one whose peer has shown itself, with a
 * round trip of 100 us measured. */
void rig_start_requester(struct rig *rig, bool selective);
void rig_start_with_peer(struct rig *rig);
/* A responder that offers selective repeat, or does not. */
void rig_start_responder(struct rig *rig, bool selective);

/* Posts a request to address 0x1000, key 7. */
void rig_post(struct rig *rig, enum sw_request_kind kind, uint32_t len, uint8_t flags);

/* The requester's next packet is of this opcode and PSN; and: it has none. */
void rig_sends(struct rig *rig, uint8_t opcode, uint32_t psn);
void rig_sends_nothing(struct rig *rig);
/* Takes out all that it would send; returns how many. */
uint32_t rig_drain(struct rig *rig);

/* An answer comes to the requester. */
void rig_answer(struct rig *rig, uint8_t opcode, uint32_t psn, uint8_t syndrome, uint32_t len);
void rig_ack(struct rig *rig, uint32_t psn);
/* As rig_answer(), with a NAK's bitmap in its first byte. */
void rig_hint(struct rig *rig, uint32_t psn, uint8_t bits);
/* Lets time pass until the requester is due, and ticks. */
void rig_tick(struct rig *rig);
void rig_done(struct rig *rig, uint32_t done);
void rig_failed(struct rig *rig, enum sw_failure failure, uint8_t syndrome);

/* A request packet as a requester would make it; the rest is the test's to fill in. */
struct sw_packet rig_packet(uint8_t opcode, uint32_t psn, uint32_t len);
/* The packet comes to the responder: whether it is to be carried out. */
bool rig_admits(struct rig *rig, const struct sw_packet *packet);
/* The same, and it is carried out with this outcome. */
void rig_request(struct rig *rig, const struct sw_packet *packet, uint8_t syndrome);
void rig_send(struct rig *rig, uint32_t psn);
/* The responder's next packet: an ACK or NAK of this PSN and syndrome; one of this opcode; none. */
void rig_acks(struct rig *rig, uint32_t psn, uint8_t syndrome);
void rig_responds(struct rig *rig, uint8_t opcode, uint32_t psn);
void rig_is_silent(struct rig *rig);

#endif
