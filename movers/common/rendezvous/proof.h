/* SPDX-License-Identifier: BSD-2-Clause */
/* How a rank shows that it knows the job's token, without telling it. */
#ifndef SW_MOVERS_RENDEZVOUS_PROOF_H
#define SW_MOVERS_RENDEZVOUS_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/rendezvous/message.h"

enum { MOVER_MEET_SUM_BYTES = 32 };

/* SHA-256 of a body: a long one is summed once for all who get it. */
void mover_meet_sum(const void *body, size_t bytes, uint8_t sum[MOVER_MEET_SUM_BYTES]);
/* Puts the proof into a header: HMAC-SHA256, by the token, of both nonces, the header before its
 * proof, and the sum of the body. `joiner` is NULL where it has told no nonce. All 0 without a
 * token. */
void mover_meet_prove(const char *token, const uint8_t *host, const uint8_t *joiner,
                      const uint8_t sum[MOVER_MEET_SUM_BYTES],
                      uint8_t header[MOVER_MEET_HEADER_BYTES]);
/* Whether a header that came has that proof. True without a token. */
bool mover_meet_is_proven(const char *token, const uint8_t *host, const uint8_t *joiner,
                          const uint8_t sum[MOVER_MEET_SUM_BYTES],
                          const uint8_t header[MOVER_MEET_HEADER_BYTES]);

#endif
