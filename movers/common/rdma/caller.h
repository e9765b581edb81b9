/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connection for commands that ask by messages, and wait for each answer (serve/clients.h is the
 * other side):
 *
 *     struct mover_caller caller = {.message_bytes = 4096};
 *     if (!mover_caller_open(&caller, "192.0.2.1", "4440", error))
 *         return mover_fail("%s", error);
 *     memcpy(mover_caller_question(&caller), "hello", 5);
 *     answer = mover_caller_ask(&caller, 5, 5000, &bytes);
 *     mover_caller_close(&caller);
 */
#ifndef SW_MOVERS_CALLER_H
#define SW_MOVERS_CALLER_H

#include "common/rdma/dial.h"
#include "common/rdma/messages.h"

struct mover_caller {
    uint32_t message_bytes; /* the caller's: at most, there and back */
    /* Its own. */
    struct mover_dial dial;
    struct mover_messages messages;
};

/* True: the connection is up. False, and why: there is nothing to close. */
bool mover_caller_open(struct mover_caller *caller, const char *address, const char *port,
                       char error[MOVER_CONNECTION_SAID]);
/* Where the question is written. The newest answer stays beside it. */
uint8_t *mover_caller_question(const struct mover_caller *caller);
/* NULL: the connection is over, or the answer did not come in time: then it is of no use any
 * more. */
const uint8_t *mover_caller_ask(struct mover_caller *caller, uint32_t bytes, int timeout_ms,
                                uint32_t *answer_bytes);
void mover_caller_close(struct mover_caller *caller);

#endif
