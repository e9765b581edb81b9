/* SPDX-License-Identifier: BSD-2-Clause */
/* What is posted to one peer, and what completes. */
#ifndef SW_COLLECTIVES_SEND_H
#define SW_COLLECTIVES_SEND_H

#include "collectives/comm/comm.h"

/* A message whose payload and record lie in the outbox. True: it is on its way, or kept until there
 * is room. False: the connection has ended. */
bool coll_send_mail(struct coll_peer *peer, enum coll_slot slot, uint64_t number,
                    uint32_t payload_bytes);
/* A READ or a WRITE of a piece; `move` completes with it. */
bool coll_send_move(struct coll_peer *peer, const struct coll_deferred *piece);
/* What was kept, as far as there is room now. */
void coll_send_deferred(struct coll_peer *peer);
void coll_send_forget(struct coll_peer *peer);
/* The connection has ended, and all that was posted has done its work: moves count as completed. */
void coll_send_settle(struct coll_peer *peer);
/* A message, a read or a write is not confirmed, or kept. */
bool coll_send_is_awaited(const struct coll_peer *peer);
/* The places of this operation's messages are not read by the device any more. */
bool coll_send_is_ready(const struct coll_peer *peer, uint64_t number);

/* A NOTE or a ROOM, a word, a piece of a long message: what goes from rank to rank. `ticket`:
 * `done` of the peer when it has completed. */
enum coll_posting coll_send_note(struct coll_peer *peer, const struct coll_note *note,
                                 const void *payload);
enum coll_posting coll_send_counter(struct coll_peer *peer, enum coll_word word, uint64_t value);
enum coll_posting coll_send_push(struct coll_peer *peer, const struct coll_deferred *piece,
                                 uint64_t *ticket);

/* A word of the peer's slice, and its doorbell; the last of what is posted, so it asks for a
 * completion. */
void coll_send_word(struct coll_peer *peer, uint32_t at, uint64_t value);
/* ABORT, whose text and bits are in the outbox. */
void coll_send_abort(struct coll_peer *peer, enum sw_coll_status status);
/* This rank's vote of that number, which is in the outbox. False: there is no connection, or no
 * room for now. */
bool coll_send_vote(struct coll_peer *peer, uint64_t number);
/* Reads and writes of the peer's buffers are under way. */
bool coll_send_has_moves(const struct coll_peer *peer);
/* The next step towards sleep, which a completion ends. */
void coll_send_tell(struct coll_peer *peer);
bool coll_send_expect_bell(struct coll_peer *peer);
/* Everything that was told is there. */
bool coll_send_has_arrived(const struct coll_peer *peer);

/* READs from the peer's mailbox into this rank's own slice of the outbox. `ticket`: as above.
 * False: there is no connection, or no room for now. */
bool coll_send_look(struct coll_peer *peer, uint64_t from, uint32_t bytes, uint64_t *ticket);

/* Takes all completions. Returns whether there were any. */
bool coll_send_poll(struct sw_coll *coll);

#endif
