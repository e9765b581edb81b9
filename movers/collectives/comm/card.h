/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What ranks tell each other before there is a connection: cards, which the exchange hands out, and
 * what they say when they connect. docs/collectives-protocol.md, "Connections", has the bytes.
 */
#ifndef SW_COLLECTIVES_CARD_H
#define SW_COLLECTIVES_CARD_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
    COLL_VERSION = 1,
    COLL_TOKEN_BYTES = 16,
    COLL_CARD_BYTES = 96,
    COLL_HELLO_BYTES = 36,
    COLL_ANSWER_BYTES = 20,
};

struct coll_card {
    struct sockaddr_storage address;
    uint8_t token[COLL_TOKEN_BYTES]; /* that of rank 0 is the job's */
    uint64_t instance;               /* of the communicator of this rank */
    uint64_t host;                   /* alike for ranks of one host */
    uint64_t mailbox;
    uint32_t key;
    uint32_t eager_bytes;
    uint32_t rank, size;
    uint32_t plan;      /* enum coll_plan */
    uint32_t processor; /* that it is bound to, from 1; 0: none */
    bool keeps_ranks;   /* ranks are not placed by hosts */
    bool is_any_order;  /* sums may have another order than that of the tree */
};

enum coll_card_fault { COLL_CARD_FINE, COLL_CARD_VERSION, COLL_CARD_GARBAGE };

void coll_card_put(uint8_t bytes[COLL_CARD_BYTES], const struct coll_card *card);
enum coll_card_fault coll_card_get(const uint8_t bytes[COLL_CARD_BYTES], struct coll_card *card);

struct coll_hello {
    uint8_t token[COLL_TOKEN_BYTES];
    uint64_t instance; /* of the caller */
    uint32_t rank;
};

void coll_hello_put(uint8_t bytes[COLL_HELLO_BYTES], const struct coll_hello *hello);
/* Longer ones, as transports pad them, are cut. */
bool coll_hello_get(const uint8_t *bytes, size_t count, struct coll_hello *hello);

/* Why a call was not accepted, or that it was. */
enum coll_answer { COLL_ACCEPTED, COLL_STRANGER, COLL_NO_ROOM };

void coll_answer_put(uint8_t bytes[COLL_ANSWER_BYTES], enum coll_answer answer, uint64_t instance,
                     uint32_t rank);
bool coll_answer_get(const uint8_t *bytes, size_t count, enum coll_answer *answer,
                     uint64_t *instance, uint32_t *rank);

#endif
