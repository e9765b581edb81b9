/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/rdma/caller.h"

enum { QUESTION, ANSWER, PLACES, RETRIES = 6 };

static bool caller_open_queue(void *context, struct mover_connection *connection)
{
    struct mover_caller *caller = context;
    return mover_connection_queue(connection, 2 * PLACES) &&
           mover_messages_open(&caller->messages, &connection->queue, connection->id,
                               connection->id->pd, PLACES, caller->message_bytes);
}

static void caller_close_queue(void *context)
{
    struct mover_caller *caller = context;
    mover_messages_close(&caller->messages);
}

bool mover_caller_open(struct mover_caller *caller, const char *address, const char *port,
                       char error[MOVER_CONNECTION_SAID])
{
    caller->dial = (struct mover_dial){
        .routed = caller_open_queue,
        .closed = caller_close_queue,
        .context = caller,
        .param = {.retry_count = RETRIES, .rnr_retry_count = RETRIES},
    };
    return mover_dial(&caller->dial, address, port, error);
}

uint8_t *mover_caller_question(const struct mover_caller *caller)
{
    return mover_message_at(&caller->messages, QUESTION);
}

const uint8_t *mover_caller_ask(struct mover_caller *caller, uint32_t bytes, int timeout_ms,
                                uint32_t *answer_bytes)
{
    struct ibv_wc wc;
    if (!mover_message_receive(&caller->messages, ANSWER) ||
        !mover_message_send(&caller->messages, QUESTION, bytes))
        return NULL;
    for (int i = 0; i < PLACES; i++) {
        if (mover_dial_poll(&caller->dial, &wc, timeout_ms) != 1 || wc.status)
            return NULL;
        if (wc.wr_id == ANSWER)
            *answer_bytes = wc.byte_len;
    }
    return mover_message_at(&caller->messages, ANSWER);
}

void mover_caller_close(struct mover_caller *caller)
{
    mover_hang_up(&caller->dial);
}
