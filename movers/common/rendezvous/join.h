/* SPDX-License-Identifier: BSD-2-Clause */
/* The ranks but 0: one connects to rank 0, joins, and waits for the cards. */
#ifndef SW_MOVERS_RENDEZVOUS_JOIN_H
#define SW_MOVERS_RENDEZVOUS_JOIN_H

#include "common/rendezvous/rendezvous.h"
#include "common/rendezvous/socket.h"

/* As mover_rendezvous(), for them. */
int mover_meet_join(const struct mover_rendezvous *how, const struct addrinfo *addresses,
                    const void *card, size_t bytes, void *cards, uint64_t deadline_ns, char *error,
                    size_t error_bytes);

#endif
