/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests and answers as storage has them: a request of 64 B, data in one direction, an answer of
 * 16 B. Several ways to move them have one interface, so that they do the same work: verbs, one TCP
 * connection, and bare UDP datagrams with a CRC.
 */
#ifndef BENCH_RPC_H
#define BENCH_RPC_H

#include <stdbool.h>
#include <stdint.h>

#define RPC_REQUEST_BYTES 64u
#define RPC_ANSWER_BYTES 16u
#define RPC_DEPTH_MAX 128u

struct rpc_options {
    const char *way;
    const char *device, *address; /* of verbs; of the target, at whoever asks */
    uint16_t port;
    uint32_t depth, data_bytes;
    uint32_t span_bytes; /* verbs: the data is a random block of so many bytes; 0: of its slot */
    bool is_write;       /* data goes to the target; else it comes from there */
    bool sleeps;         /* both sides, until an event; else they poll */
    unsigned long count; /* of requests */
};

struct rpc_way {
    const char *name;
    /* `control`: joins both sides; closed by the asking side at the end. */
    void (*open)(const struct rpc_options *options, int control);
    /* Asks: these slots, together. */
    void (*ask)(const uint32_t *slots, uint32_t count);
    /* Waits for answers. Returns how many, and the slots of those. */
    uint32_t (*await)(uint32_t slots[RPC_DEPTH_MAX]);
    /* Answers until the other side has gone. */
    void (*serve)(void);
    void (*close)(void);
};

extern const struct rpc_way rpc_verbs, rpc_tcp, rpc_udp, rpc_udp_shared;

#endif
