/* SPDX-License-Identifier: BSD-2-Clause */
/* Ranks and strangers that are played by hand, byte by byte. */
#ifndef SW_TESTS_MOVERS_RENDEZVOUS_BY_HAND_H
#define SW_TESTS_MOVERS_RENDEZVOUS_BY_HAND_H

#include <stdint.h>

#include "common/rendezvous/message.h"

enum { PATIENCE_MS = 60000, CARD_BYTES = 8 };

struct message {
    uint8_t bytes[MOVER_MEET_HEADER_BYTES + MOVER_MEET_JOIN_BYTES + CARD_BYTES];
};

/* A connection to rank 0, once that is there. */
int hand_call(const char *at);
void hand_read(int fd, void *to, size_t bytes);
/* The join of a rank, in answer to the welcome that it reads. */
struct message hand_make_join(int fd, uint32_t rank, uint32_t size, const char *token);
int hand_join(const char *at, uint32_t rank, uint32_t size);
void hand_await_taken(int fd);
/* What follows the note: CARDS, or a REFUSAL. */
uint16_t hand_read_end(int fd, uint8_t *body, size_t body_max);

#endif
