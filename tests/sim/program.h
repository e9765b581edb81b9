/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The simulated programs of test iwarp: two sides of a connection, each with SENDs, WRITEs, READs
 * and atomics drawn from the seed, and what each completion and byte of memory must be.
 */
#ifndef SW_TESTS_SIM_PROGRAM_H
#define SW_TESTS_SIM_PROGRAM_H

#include "link/sim/iwarp_end.h"

#define MS 1000000ull
/* The memory of a side: a part of its host's. */
enum {
    STATIC_AT = 0, /* never written: READs */
    STATIC_BYTES = 16384,
    WRITTEN_AT = STATIC_AT + STATIC_BYTES, /* each byte at most once */
    WRITTEN_BYTES = 65536,
    COUNTER_AT = WRITTEN_AT + WRITTEN_BYTES,
    RECEIVE_AT = COUNTER_AT + 64,
    RECEIVE_BYTES = 6144,
    SOURCE_AT = RECEIVE_AT + (int)SW_SIM_RECEIVES * RECEIVE_BYTES,
    SOURCE_BYTES = 16384,
    SINK_AT = SOURCE_AT + SOURCE_BYTES,
    SINK_BYTES = 4096,
    OPS_MAX = 60,
    MEMORY_BYTES = SINK_AT + OPS_MAX * SINK_BYTES,
};

enum mode { CLEAN, RESET, CLOSED, FLIPS_CRC, FLIPS, TRESPASS, REJECTED, FORGED, MODES };

struct op {
    struct sw_request request;
    uint64_t local;
    const uint8_t *expected; /* READ: what comes */
    uint64_t original;       /* atomic */
};

struct message {
    bool has_imm;
    uint32_t len_bytes, imm;
    const uint8_t *bytes; /* NULL: of a WRITE */
};

struct side {
    struct connection *conn;
    int number;
    struct sw_sim_host *host;
    uint64_t base; /* address of its memory */
    uint32_t key_static, key_written, key_counter;
    uint8_t expected[WRITTEN_BYTES]; /* what the peer writes here */
    struct op ops[OPS_MAX];
    uint32_t op_count, posted, completed, succeeded, received;
    struct message messages[OPS_MAX]; /* that it sends */
    uint32_t message_count;
    bool has_ended;
    uint8_t fixed[STATIC_BYTES + SOURCE_BYTES]; /* what is in memory that nobody may write */
    uint8_t left[MEMORY_BYTES];                 /* all of it, when its connection had ended */
};

struct connection {
    struct world *world;
    struct side sides[2];
    struct sw_sim_iwarp ends[2];
    struct sw_sim_pipe pipes[2];
};

struct forge;

struct world {
    struct sw_sim_world sim;
    struct sw_sim_net net;
    struct sw_sim_host hosts[2];
    struct connection conns[2]; /* the second, of the same hosts, beside forged segments */
    int conn_count;
    struct forge *forge;
    enum mode mode;
    uint16_t trespass_cause;
    uint32_t flip;
    uint64_t seed;
    bool failed;
};

__attribute__((format(printf, 2, 3))) void program_fault(struct world *w, const char *format, ...);

static inline uint32_t below(struct world *w, uint32_t limit)
{
    return sw_sim_below(&w->sim, limit);
}

static inline uint8_t *at(const struct side *side, uint64_t offset)
{
    return sw_sim_host_at(side->host, side->base + offset);
}

/* Its memory, its keys and what it will ask for. Both sides first, then the programs. */
void program_init(struct connection *conn, int number, uint64_t offset);
void program_draw(struct side *side);
/* The last request of side 0 becomes one that its peer does not admit; world.trespass_cause is what
 * is to be said of it. */
void program_trespass(struct connection *conn);
/* An event: posts from now on. */
void program_post(void *side, void *what);
void program_complete(struct sw_sim_qp *qp, const struct sw_sim_completion *wc);
void program_ended(struct sw_sim_iwarp *end);

/* All requests succeeded. */
void program_check_whole(struct connection *conn);
/* Nothing was written that was not asked for, and nothing once the connection had ended. */
void program_check_memory(struct side *side);

#endif
