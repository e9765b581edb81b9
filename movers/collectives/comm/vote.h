/* SPDX-License-Identifier: BSD-2-Clause */
/* Votes on who is gone as bytes of a mailbox: docs/collectives-protocol.md, "Votes". */
#ifndef SW_COLLECTIVES_VOTE_H
#define SW_COLLECTIVES_VOTE_H

#include "collectives/comm/comm.h"

/* To the peer, if it has not got this rank's newest one, and there is room. */
void coll_vote_send(struct coll_peer *peer);
/* The peer has the newest one. */
bool coll_vote_is_there(const struct coll_peer *peer);
/* The peer's newest one, and the card that it shows. False: none can be read now. */
bool coll_vote_read(const struct coll_peer *peer, struct coll_vote *vote,
                    uint8_t card[COLL_CARD_BYTES]);

#endif
