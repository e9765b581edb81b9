/* SPDX-License-Identifier: BSD-2-Clause */
/* Rank 0: it listens, takes who comes, and tells all. */
#ifndef SW_MOVERS_RENDEZVOUS_HOST_H
#define SW_MOVERS_RENDEZVOUS_HOST_H

#include "common/rendezvous/rendezvous.h"
#include "common/rendezvous/socket.h"

/* As mover_rendezvous(), for rank 0. */
int mover_meet_host(const struct mover_rendezvous *how, const struct addrinfo *addresses,
                    const void *card, size_t bytes, void *cards, uint64_t deadline_ns, char *error,
                    size_t error_bytes);

#endif
