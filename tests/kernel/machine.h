/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A queue pair of transport/'s machines on a socket: what a NIC adds to them, in the simplest way.
 * Its peer is target.c in the guest.
 */
#ifndef SW_TESTS_KERNEL_MACHINE_H
#define SW_TESTS_KERNEL_MACHINE_H

#include "peer.h"
#include "target.h"
#include "transport/requester.h"
#include "transport/responder.h"

#define MACHINE_BASE 0x100000ull /* the address of memory[0] */
enum { MACHINE_ENTRIES = 16, MACHINE_RKEY = 0x4711, MACHINE_RECEIVES = 64 };

struct machine {
    struct peer *peer;
    int control; /* the TCP connection */
    uint32_t qpn;
    uint64_t target_addr;
    uint32_t target_rkey;
    uint32_t loss; /* of the packets, both ways, in 1/1000 */
    uint64_t random;
    struct sw_requester requester;
    struct sw_responder responder;
    struct sw_request ring[MACHINE_ENTRIES];
    enum sw_failure failure;
    uint8_t syndrome;
    /* For the request at a position: its bytes, or what it reads; what an atomic found. */
    uint8_t data[MACHINE_ENTRIES][TARGET_MESSAGE_MAX];
    uint64_t original[MACHINE_ENTRIES];
    /* What the peer may access, and what it sent: message i lies in slot i % MACHINE_RECEIVES. */
    uint8_t memory[TARGET_MEMORY];
    uint32_t received_count;
    uint32_t received_len[MACHINE_RECEIVES];
    uint8_t received[MACHINE_RECEIVES][TARGET_MESSAGE_MAX];
};

/* Connects to the target. `loss`: in 1/1000 of the packets. Exits the program if that cannot be. */
void machine_open(struct machine *m, struct peer *peer, enum sw_service service, uint32_t mtu_bytes,
                  uint32_t loss);
void machine_close(struct machine *m);

uint32_t machine_random(struct machine *m);

/* Posts a request; false: the ring is full. Its bytes are data[position % MACHINE_ENTRIES]. */
bool machine_post(struct machine *m, const struct sw_request *request);

/* Waits for packets or until something is due, and does all there is to do. */
void machine_step(struct machine *m);

#endif
