/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages from rank to rank as a machine: what sw_coll_send() and sw_coll_recv() ask for. No
 * clock, no I/O; memory only from its caller.
 *
 * The messages of an ordered pair of ranks are matched in their order, without tags. A short one
 * goes into a ring of the receiver at once, so its sender does not wait for the receiver. For a
 * long one the receiver says where it belongs, and the sender writes it there. The rank that sees
 * both sides first compares them: count and type have to be alike, or nothing is written.
 */
#ifndef SW_COLLECTIVES_PAIRS_H
#define SW_COLLECTIVES_PAIRS_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/core/note.h"
#include "common/base/list.h"
#include "sidewire/coll.h"

/* LATER: there is no room now, or no connection yet. LOST: that has ended. */
enum coll_posting { COLL_POSTED, COLL_LATER, COLL_LOST };

/* A message of this rank's side, from its post until it is over. */
struct coll_transfer {
    struct list_node node;
    bool is_send;
    uint32_t peer;
    enum sw_coll_type type;
    void *data; /* a sender only reads it */
    uint64_t count, tag;
    struct coll_memory memory; /* of a receiver: what the sender reaches `data` by, of a long one */

    uint64_t number, bytes;
    bool is_noted;   /* NOTE, or ROOM, was sent */
    bool is_written; /* so was WRITTEN */
    uint64_t pushed; /* bytes */
    uint64_t ticket; /* of the last push */
};

/* As struct coll_port: verbs answer it in comm/, a simulated world in the tests. `peer` may be this
 * rank itself. What goes to one peer becomes visible there in the order of the posts. */
struct coll_pairs_port {
    void *context;
    /* Writes a NOTE or a ROOM to its place at the peer. `payload` has `payload_bytes`, and is NULL
     * where these are in the note. Both are copied. */
    enum coll_posting (*note)(void *context, uint32_t peer, const struct coll_note *note,
                              const void *payload);
    enum coll_posting (*word)(void *context, uint32_t peer, enum coll_word word, uint64_t value);
    /* A part of a message, from `transfer->data` + `transfer->pushed`. */
    enum coll_posting (*push)(void *context, const struct coll_transfer *transfer,
                              struct coll_memory to, uint64_t bytes, uint64_t *ticket);
    /* That push to the peer, and those before it, have completed. */
    bool (*has_settled)(void *context, uint32_t peer, uint64_t ticket);
    /* The place of that NOTE or ROOM of the peer, whatever is there, and the bytes before it. NULL:
     * its mark is that of another number. */
    const struct coll_note *(*look)(void *context, uint32_t peer, bool is_room, uint64_t number);
    uint64_t (*look_word)(void *context, uint32_t peer, enum coll_word word);
};

struct coll_pair {
    struct list_node node; /* of those in which something is under way */
    bool is_busy;
    uint32_t rank;
    struct list sends, recvs;
    uint64_t sent, awaited; /* so many were posted */
    uint64_t received;      /* so many are over */
    uint64_t told;          /* TAKEN */
};

struct coll_pairs {
    uint32_t rank, size;
    uint32_t short_bytes; /* alike on all ranks */
    uint64_t piece_bytes; /* of a push, at most */
    const struct coll_pairs_port *port;
    struct coll_pair *pairs; /* one for each rank */
    struct list busy;
    struct list over; /* transfers that ended well: the caller takes them away */
    enum sw_coll_status status;
    struct sw_coll_error error;
};

/* `pairs` has room for `size`. */
void coll_pairs_init(struct coll_pairs *machine, uint32_t rank, uint32_t size, uint32_t short_bytes,
                     uint64_t piece_bytes, const struct coll_pairs_port *port,
                     struct coll_pair *pairs);
/* INVALID with a text, or OK: then it has its `bytes`. */
enum sw_coll_status coll_pairs_check(const struct coll_pairs *machine,
                                     struct coll_transfer *transfer, struct sw_coll_error *error);
/* Other ranks, or requests of this one, touch its buffer: it has to be registered. */
static inline bool coll_transfer_is_long(const struct coll_pairs *machine,
                                         const struct coll_transfer *transfer)
{
    const uint32_t least = COLL_INLINE_MAX;
    return transfer->bytes > (machine->short_bytes > least ? machine->short_bytes : least);
}
/* Behind those of before. It is OK by coll_pairs_check(). */
void coll_pairs_post(struct coll_pairs *machine, struct coll_transfer *transfer);
/* Goes on as far as it can. OK, or it has failed, with `machine->error`. */
enum sw_coll_status coll_pairs_go(struct coll_pairs *machine);

/* The next message of that rank that no posted receive is for. AGAIN: it has not come. */
enum sw_coll_status coll_pairs_probe(struct coll_pairs *machine, uint32_t peer,
                                     struct sw_coll_message *message);

/* Takes away all that is not over. */
struct coll_transfer *coll_pairs_drop(struct coll_pairs *machine);
/* Something is awaited from that rank, or from this one itself. */
bool coll_pair_waits(const struct coll_pair *pair);
/* The first that waits for it: of those to be received, else of those that are sent. */
const struct coll_transfer *coll_pair_first(const struct coll_pair *pair);
/* "rank 3 has not sent message 5 to rank 1"; what it waits for. */
void coll_transfer_waits_text(const struct coll_pairs *machine,
                              const struct coll_transfer *transfer, char *text, size_t room);

#endif
