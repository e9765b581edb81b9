/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A requester and a responder joined by a network that loses, copies and delays
 * as told, on a virtual clock. Packets travel as bytes, through the codec. The responder's demands
 * are carried out on a small memory, so that a test can say from outside what must have happened,
 * and how often.
 */
#ifndef SW_TESTS_TRANSPORT_PAIR_H
#define SW_TESTS_TRANSPORT_PAIR_H

#include "transport/requester.h"
#include "transport/responder.h"

#define PAIR_BASE 0x10000ull /* the address of memory[0] */
enum {
    PAIR_RKEY = 0x700,
    PAIR_MEMORY = 1 << 20,
    PAIR_ENTRIES = 128,
    PAIR_POOL = 1024,
    PAIR_LOCAL = 1 << 17, /* bytes that a request may have */
    PAIR_QUEUE = 1 << 14,
    PAIR_RECEIVED = 4096,
};

/* In 1/65536 of the packets. */
struct pair_faults {
    uint32_t loss, copy, reorder;
    uint32_t rnr;                  /* of the messages that want a receive, there is none yet */
    uint64_t delay_ns, reorder_ns; /* one way; what a reordered packet is late by at most */
    /* A bottleneck towards the responder, and towards the requester: ns for each
     * byte in 1/1024, and what may wait before it; 0: none. */
    uint32_t byte_ns_1024;
    uint64_t queue_ns;
};

struct pair_packet {
    uint64_t at_ns, order;
    bool to_responder;
    uint32_t len;
    uint8_t bytes[SW_HEADERS_MAX + 4096 + SW_TRAILER_MAX];
};

struct pair_received {
    uint32_t len, imm_be;
    bool has_imm, solicited;
    uint64_t sum; /* of the bytes */
};

struct pair {
    struct sw_requester requester;
    struct sw_responder responder;
    struct sw_early_pool pool;
    struct sw_early_slot slots[PAIR_POOL];
    struct sw_early_copy copies[PAIR_POOL];
    struct sw_request ring[PAIR_ENTRIES];
    uint64_t now_ns, random, sent_count, dropped;
    uint64_t busy_ns[2]; /* until when a direction is */
    struct pair_faults faults;
    /* How many copies of a packet arrive; NULL: as faults say. */
    uint32_t (*script)(struct pair *p, const struct sw_packet *packet, bool to_responder);
    uint32_t script_state[4];
    struct pair_packet *heap[PAIR_QUEUE];
    uint32_t heap_count;
    /* The requester's side. */
    uint8_t *local[PAIR_ENTRIES]; /* what is sent, or where it is read to */
    uint64_t original[PAIR_ENTRIES];
    enum sw_failure failure;
    uint8_t syndrome;
    /* The responder's. */
    uint8_t memory[PAIR_MEMORY];
    uint32_t receives; /* posted */
    uint32_t received_count;
    struct pair_received received[PAIR_RECEIVED];
    uint64_t send_sum;
    uint32_t executed[SW_DEMAND_FLUSH + 1];
    uint8_t refuse; /* AETH syndrome for the next demand that is no duplicate; 0:
                       none */
    bool keep_refusing;
};

/* With defaults where `requester` or `responder` is NULL: RC, MTU 1024, timeout
 * 14, seven retries.
 */
struct pair *pair_new(const struct sw_requester_config *requester,
                      const struct sw_responder_config *responder, uint64_t seed);
void pair_free(struct pair *p);
extern const struct sw_requester_config pair_requester_config;
extern const struct sw_responder_config pair_responder_config;

uint32_t pair_random(struct pair *p);

/* Posts a request of this kind on [offset, offset+len) of the memory; the bytes
 * sent are made of `fill`. Returns its position. */
uint32_t pair_post(struct pair *p, enum sw_request_kind kind, uint32_t offset, uint32_t len,
                   uint8_t fill, uint8_t flags);

/* Sends what may go and lets time pass until all requests are complete or one
 * has failed. Returns false if that takes more than `limit_ns`. */
bool pair_run(struct pair *p, uint64_t limit_ns);

/* One step of that; false: nothing is going to happen any more. */
bool pair_step(struct pair *p);

uint8_t pair_byte(uint8_t fill, uint32_t i);

#endif
