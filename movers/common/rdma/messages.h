/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A queue pair for messages of one size, with registered places for them. A place is received into,
 * or sent from; what is done with it completes with its number as `wr_id`:
 *
 *     if (!mover_messages_open(&messages, &queue, id, id->pd, 2, 4096) ||
 *         !mover_message_receive(&messages, 0))
 *         ...
 *     memcpy(mover_message_at(&messages, 1), "hello", 5);
 *     mover_message_send(&messages, 1, 5);
 */
#ifndef SW_MOVERS_MESSAGES_H
#define SW_MOVERS_MESSAGES_H

#include <assert.h>

#include "common/rdma/queue.h"

/* All zero: not open. */
struct mover_messages {
    struct ibv_qp *qp; /* that of the rdma_cm_id, which its owner destroys */
    struct ibv_mr *mr;
    uint8_t *places;
    uint32_t count, bytes; /* of places, and of each */
};

/* Makes the queue pair of the id, whose completions, of sends too, come to the queue. It has room
 * for one more request beside the messages. False and errno: there is no room for it. Close it also
 * after a failure. */
bool mover_messages_open(struct mover_messages *messages, struct mover_queue *queue,
                         struct rdma_cm_id *id, struct ibv_pd *pd, uint32_t count, uint32_t bytes);
/* After the queue pair is destroyed: the device may still use the places before. */
void mover_messages_close(struct mover_messages *messages);

static inline uint8_t *mover_message_at(const struct mover_messages *messages, uint64_t place)
{
    assert(place < messages->count);
    return messages->places + place * messages->bytes;
}

/* False and errno: the queue pair has no room, or has ended. The place is the device's until that
 * completes. */
static inline bool mover_message_receive(const struct mover_messages *messages, uint64_t place)
{
    return mover_post_receive(messages->qp, place, mover_message_at(messages, place),
                              messages->bytes, messages->mr->lkey);
}

static inline bool mover_message_send(const struct mover_messages *messages, uint64_t place,
                                      uint32_t bytes)
{
    assert(bytes <= messages->bytes);
    return mover_post_send(messages->qp, place, mover_message_at(messages, place), bytes,
                           messages->mr->lkey, 0);
}

#endif
