/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A request of the peer, and how it ends: acknowledged, answered, delivered to a receive, refused
 * or lost. With the QP locked; each opens its own access section.
 */
#ifndef SW_LINK_DIRECT_SERVE_SERVE_H
#define SW_LINK_DIRECT_SERVE_SERVE_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "device/serve/execute.h"
#include "link/direct/bind/connection.h"
#include "link/direct/process/block.h"

/* ENDED: the connection is over, and its state freed. */
enum sw_serve { SW_SERVED, SW_SERVE_WAIT, SW_SERVE_ENDED };

/* A record's head, read once from memory that the peer may still scribble over. */
struct sw_peer_request {
    uint8_t kind, flags, slots, verdict;
    uint32_t len_bytes, imm;
    const struct sw_record *slot;
    struct sw_inbound message;
};

/* The rest of it, for the kinds that ask the target to do something. */
static inline struct sw_record sw_request_whole(const struct sw_peer_request *request)
{
    struct sw_record copy;
    memcpy((void *)&copy, (const void *)request->slot, sizeof(copy));
    atomic_signal_fence(memory_order_seq_cst); /* what was checked must not be read again */
    return copy;
}

/* Its bytes in the bounce area, `at` being what the peer says; NULL: not a sane place. */
static inline const uint8_t *sw_request_bounced(const struct sw_direct_qp *d,
                                                const struct sw_peer_request *request, uint32_t at)
{
    if (request->len_bytes > SW_BOUNCE_CHUNK || at > SW_REQUEST_BOUNCE - request->len_bytes)
        return NULL;
    return d->rx->request_bounce + at;
}

/* The peer broke the protocol, or was refused: our QP fails. */
enum sw_serve sw_serve_end_connection(struct sw_qp *qp, enum sw_verdict verdict);

/* Ends a request that wants an answer of its own. */
enum sw_serve sw_serve_answer(struct sw_qp *qp, struct sw_direct_qp *d, enum sw_verdict verdict,
                              uint64_t original);

/* Ends a request that was done: sw_answer_tell() answers, for all that one run does. */
static inline enum sw_serve sw_serve_acknowledge(struct sw_direct_qp *d)
{
    d->serve.acks_due++;
    return SW_SERVED;
}

/* Ends a message that lies where its receive wants it. A sleeping program is woken when the answer
 * is out: what it then sends must not be seen before that, as it is not where hardware answers. */
enum sw_serve sw_serve_deliver(struct sw_qp *qp, struct sw_direct_qp *d,
                               const struct sw_peer_request *request, uint32_t len_bytes,
                               enum ibv_wc_opcode opcode);

/* An unreliable message that cannot be delivered: what is left of it is skipped, and its last piece
 * is answered like any other, because the sender counts on the order of answers; or as one whose
 * receive serves the next, because it counts those, too. */
enum sw_serve sw_serve_lose(struct sw_qp *qp, struct sw_direct_qp *d,
                            const struct sw_peer_request *request);

/* Refuses a request: by a NAK or, where there is none, by losing it. An unreliable sender hears
 * nothing of a fault of our own that ends the QP either: its message ends as others do, with its
 * last piece. */
enum sw_serve sw_serve_refuse(struct sw_qp *qp, struct sw_direct_qp *d,
                              const struct sw_peer_request *request, enum sw_verdict verdict);

/* Room for an answer, tested before an effect that must not be repeated. */
bool sw_serve_can_answer(struct sw_qp *qp, struct sw_direct_qp *d);

/* Takes the receive that the message is for, unless it has it; false: there is none. */
bool sw_serve_take_receive(struct sw_qp *qp, struct sw_direct_qp *d,
                           const struct sw_peer_request *request);
/* No receive for a message that waits in the ring: the sender's retries are counted here, where the
 * receive would show up. */
enum sw_serve sw_serve_rnr(struct sw_qp *qp, struct sw_direct_qp *d,
                           const struct sw_peer_request *request, uint8_t rnr_retry);

#endif
