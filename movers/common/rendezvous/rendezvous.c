/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/rendezvous/rendezvous.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/rendezvous/host.h"
#include "common/rendezvous/join.h"

int mover_rendezvous(const struct mover_rendezvous *how, const void *card, size_t bytes,
                     void *cards, uint64_t deadline_ns, char *error, size_t error_bytes)
{
    struct addrinfo *addresses;
    if (!how->size || how->size > MOVER_RENDEZVOUS_RANKS_MAX || how->rank >= how->size) {
        snprintf(error, error_bytes, "rank %u of %u: there may be %d, and rank 0 is the first",
                 how->rank, how->size, MOVER_RENDEZVOUS_RANKS_MAX);
        return -EINVAL;
    }
    if (!bytes || bytes > MOVER_RENDEZVOUS_CARD_MAX) {
        snprintf(error, error_bytes, "a card has 1 to %d bytes", MOVER_RENDEZVOUS_CARD_MAX);
        return -EINVAL;
    }
    if (how->size == 1) { /* nobody to meet */
        memcpy(cards, card, bytes);
        return 0;
    }
    int code = mover_meet_resolve(how->at ? how->at : "", &addresses, error, error_bytes);
    if (code)
        return code;
    code = (how->rank ? mover_meet_join : mover_meet_host)(how, addresses, card, bytes, cards,
                                                           deadline_ns, error, error_bytes);
    freeaddrinfo(addresses);
    return code;
}
