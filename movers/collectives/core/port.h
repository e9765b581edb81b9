/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the machine of operations asks of the network: verbs answer it in comm/, a simulated world
 * in the tests. Nothing here waits. The `context` comes first in each call.
 */
#ifndef SW_COLLECTIVES_PORT_H
#define SW_COLLECTIVES_PORT_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/core/record.h"

struct coll_port {
    void *context;
    /* So many pulls and pushes may be posted and not settled, of all peers together. */
    uint32_t posts_max;
    /* Writes a message into the mailbox that `peer` has for this rank: on the side and with the
     * mark of `record->mark`. `payload` has `record->payload_bytes`, and is NULL where these are in
     * the record. Both are copied before it returns. Requests to one peer become visible there in
     * the order of their posts. False: the connection has ended. */
    bool (*mail)(void *context, uint32_t peer, enum coll_slot slot,
                 const struct coll_record *record, const void *payload);
    /* The message of operation `number` from that peer. False: it is not there yet. */
    bool (*look)(void *context, uint32_t peer, enum coll_slot slot, uint64_t number,
                 struct coll_mail *mail);
    /* A READ into memory of this rank, and a WRITE from it. Both are given to the device, or kept
     * by the port until it has room. False: the connection has ended. */
    bool (*pull)(void *context, uint32_t peer, void *to, struct coll_memory from, size_t bytes);
    bool (*push)(void *context, uint32_t peer, const void *from, struct coll_memory to,
                 size_t bytes);
    /* Pulls and pushes to all peers since coll_machine_init(), in the order of their posts: how
     * many of the first have completed. */
    uint64_t (*settled)(void *context);
    /* Where that peer has its struct coll_shown. */
    struct coll_memory (*shown)(void *context, uint32_t peer);
};

#endif
