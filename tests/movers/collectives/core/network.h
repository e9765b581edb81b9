/* SPDX-License-Identifier: BSD-2-Clause */
/* The world's ranks, and what is on its way between them. */
#ifndef SW_TEST_COLLECTIVES_NETWORK_H
#define SW_TEST_COLLECTIVES_NETWORK_H

#include "world.h"

enum {
    GUARD = 64,
    SIDES = 2,
    POSTS = 1024,
    POSTS_MAX = 40,
    SCRATCH_KEY = 0x7fffffff,
    SHOWN_KEY = 0x7ffffffe
};

/* Memory of an operation: as it was, as it has to be in the end, and as it is. */
struct world_buffer {
    uint8_t *memory, *before, *after;
    size_t bytes; /* with guards */
};

struct world_mail {
    struct coll_record record;
    uint8_t *room; /* eager_bytes of payload */
};

struct world_rank {
    struct world *world;
    uint32_t rank;
    struct coll_machine machine;
    struct coll_port port;
    void *memory, *scratch;
    struct coll_shown *shown;
    struct world_mail *mails; /* of each rank, side and slot */
    uint64_t begun, ended;
    bool is_slow, has_failed, has_stopped;
    bool is_gone; /* its connections have ended: it has died, or its operation has failed */
    struct world_buffer buffers[2]; /* the second: where send and recv are apart */
    uint8_t *send, *recv;
    uint64_t send_bytes, recv_bytes;
    uint64_t posted, revealed;
    bool has_completed[POSTS];
};

enum world_entry_kind { WORLD_MAIL, WORLD_PUSH, WORLD_PULL };

struct world_entry {
    struct world_entry *next;
    enum world_entry_kind kind;
    enum coll_slot slot;
    struct coll_record record;
    uint64_t number, post; /* of the operation; of the rank's requests */
    uint8_t *local;
    struct coll_memory remote;
    size_t bytes;
    uint8_t *data; /* a copy, once it was read; NULL: not yet */
};

/* From one rank to another one: mails and pushes, or pulls. */
struct world_link {
    struct world_entry *first, *last;
    uint32_t active; /* its place in `active`, from 1; 0: it is empty */
};

struct world {
    const struct world_options *options;
    struct world_result *result;
    struct world_rank *ranks;
    struct world_link *links;
    uint32_t *active, active_count;
    uint32_t size;
    uint64_t random, progress;
    uint64_t death, death_known; /* so much progress before it happens, before others notice */
};

/* Others notice that this rank's connections have ended. */
static inline bool is_known_gone(const struct world_rank *rank)
{
    return rank->is_gone && rank->world->progress >= rank->world->death_known;
}

void network_open(struct world *world);
void network_close(struct world *world);
struct coll_port network_port(struct world_rank *rank);
/* Something on its way goes on. */
void network_step(struct world *world);
void world_fail(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
