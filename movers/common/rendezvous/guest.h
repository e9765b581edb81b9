/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection to rank 0: a rank's, or a stranger's. */
#ifndef SW_MOVERS_RENDEZVOUS_GUEST_H
#define SW_MOVERS_RENDEZVOUS_GUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/rendezvous/frame.h"
#include "common/rendezvous/proof.h"
#include "common/rendezvous/roll.h"

struct mover_guest {
    int fd; /* -1: a free place */
    uint64_t since_ns;
    bool is_taken; /* it is the rank of the roll */
    bool is_told;  /* that it fails: it is closed once that has left */
    uint32_t rank;
    uint32_t watch; /* its place among those that rank 0 polls */
    uint8_t nonce[MOVER_MEET_NONCE_BYTES], joiner[MOVER_MEET_NONCE_BYTES];
    struct mover_meet_inbox in;
    struct mover_meet_outbox out;
    char name[MOVER_ROLL_NAME_MAX];
};

/* Somebody has connected: queues the welcome. False: there is no nonce for it. */
bool mover_guest_open(struct mover_guest *guest, int fd, uint64_t now_ns);
void mover_guest_close(struct mover_guest *guest);
/* Queues a short message. One that has no room is left out: the guest does not read. */
void mover_guest_tell(struct mover_guest *guest, const char *token, enum mover_meet_kind kind,
                      const void *body, size_t bytes);
/* Queues the last message, whose body stays the caller's, with its sum. */
void mover_guest_tell_last(struct mover_guest *guest, const char *token, enum mover_meet_kind kind,
                           const void *body, size_t bytes, const uint8_t sum[MOVER_MEET_SUM_BYTES]);

#endif
