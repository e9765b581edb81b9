/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A handle: the capture of the state, up to three sinks, maybe other ranks, and the thread of I/O
 * that drives the sinks.
 *
 * One lock guards all of it. The thread of I/O holds it for a turn, and the program's thread for a
 * call; whoever has it may use the stores. Only the gate goes without: it belongs to the capture.
 *
 * A snapshot is an instance of `struct snap_save`. On each sink it goes from WRITING to PREPARED,
 * or the sink gives it up. It is over when no sink has anything to do with it any more.
 */
#ifndef SW_SNAPSHOT_SESSION_H
#define SW_SNAPSHOT_SESSION_H

#include <pthread.h>

#include "common/rdma/fork_guard.h"
#include "snapshot/capture/capture.h"
#include "snapshot/session/ranks.h"
#include "snapshot/store/store.h"

/* What the state is, as it was described; several snapshots may use it. */
struct snap_described {
    uint32_t references;
    struct snap_cut cut;
    struct snap_index index;
    uint64_t index_bytes;
    uint64_t bytes;
};

enum snap_sink_stage {
    SNAP_SINK_GONE,    /* it could not be opened, or is lost: see its error */
    SNAP_SINK_OPENING, /* a thread opens it */
    SNAP_SINK_IDLE,    /* it has nothing to do with the snapshot */
    SNAP_SINK_WRITING, /* it gets units */
    SNAP_SINK_PREPARING,
    SNAP_SINK_PREPARED, /* the snapshot counts here */
    SNAP_SINK_ABORTING,
    SNAP_SINK_FORGETTING, /* what is not kept any more, or what has failed elsewhere */
};

struct snap_sink {
    struct sw_snap *snap;
    char *text; /* with the rank in it */
    enum snap_sink_stage stage;
    struct snap_store *store; /* NULL: it is GONE or OPENING */
    uint32_t units;           /* that are under way */
    bool is_missing;          /* there is no volume yet: describe makes it */
    bool is_failing;          /* by `error`: it is given up at the end of the turn */
    bool has_newest;
    uint64_t written_bytes;     /* by snapshots that are over */
    struct sw_snap_error error; /* why it is not live, or has given the last snapshot up */
};

/* A unit in the ring that sinks get. */
struct snap_held {
    struct snap_captured captured;
    bool is_used, is_given;
    uint32_t under_way; /* sinks that have it */
    struct snap_store_unit units[SW_SNAP_SINKS_MAX];
    struct snap_held_context {
        struct snap_held *held;
        struct snap_sink *sink;
    } contexts[SW_SNAP_SINKS_MAX];
};

struct snap_save {
    bool is_active;                        /* from begin until it is over */
    bool is_captured;                      /* clean, and all units are given to the sinks */
    bool is_agreed, is_asked, is_answered; /* with other ranks: both votes */
    bool is_gate_due;                      /* the gate says how it went */
    enum sw_snap_stage stage;
    struct sw_snap_error error;
    uint64_t step;
    struct snap_described *state;
    uint64_t copied_bytes, changed_bytes, moved_bytes, gate_ns, gate_bytes;
    uint64_t begun_ns, staged_ns, stored_ns, durable_ns;
};

struct sw_snap {
    struct mover_fork_guard guard;
    struct sw_snap_options options;
    struct snap_capture *capture;
    struct snap_ranks *ranks; /* NULL: alone */
    uint8_t nonce[16];        /* of tokens; the same on all ranks */
    uint64_t seed;
    char writer[56];
    void *ring;
    size_t ring_bytes;
    int wake_fd, told_fd;
    pthread_t thread, opener;
    bool has_thread, has_opener;
    pthread_mutex_t door; /* whoever waits for `lock` has it: so the others wait in turn */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_closing, is_opening;
    bool has_moved; /* something has gone on in this turn: another one comes before sleep */
    struct snap_described *state;
    struct snap_sink sinks[SW_SNAP_SINKS_MAX];
    struct snap_held *held; /* one for each slot of the ring */
    uint32_t held_count;
    struct snap_save save;
    bool has_begun, has_durable;
    uint64_t durable_step, taken, failed, skipped, torn;
};

/* ---- session.c: the lock ---- */
void snap_session_lock(struct sw_snap *snap);
void snap_session_unlock(struct sw_snap *snap);
/* The thread of I/O takes a turn. */
void snap_session_wake(struct sw_snap *snap);
/* Waits, for a second at most, until the sinks of what is durable have finished behind it. */
void snap_session_settle(struct sw_snap *snap);
/* Nothing of the last snapshot is under way. */
bool snap_session_is_idle(const struct sw_snap *snap);

/* ---- described.c ---- */
enum sw_snap_status snap_described_make(const struct sw_snap_range *ranges, uint32_t ranges_count,
                                        uint32_t unit_bytes, struct sw_snap_error *error,
                                        struct snap_described **state);
void snap_described_drop(struct snap_described *state);
/* What the capture has to know of it. */
enum sw_snap_status snap_described_capture(const struct snap_described *state,
                                           const struct sw_snap_range *ranges,
                                           struct snap_capture *capture,
                                           struct sw_snap_error *error);

/* ---- sink.c ---- */
/* Blocks, without the lock; the sink is OPENING. `bytes` as of snap_medium_options. */
enum sw_snap_status snap_sink_open(struct snap_sink *sink, uint64_t bytes, bool take_over,
                                   struct snap_store **store, struct sw_snap_error *error);
/* It is IDLE with a store, else GONE by that error. */
void snap_sink_opened(struct snap_sink *sink, struct snap_store *store,
                      const struct sw_snap_error *error);
/* Closes the store; what it had of the snapshot has failed. */
void snap_sink_drop(struct snap_sink *sink);
static inline bool snap_sink_is_live(const struct snap_sink *sink)
{
    return sink->store != NULL;
}
/* How many are live; `error` gets why others are not. */
uint32_t snap_sinks_live(struct sw_snap *snap, struct sw_snap_error *error);
/* Tries those that are gone, by a thread. */
void snap_sinks_reopen(struct sw_snap *snap);
/* How large a volume is made for the state that was described. */
uint64_t snap_sink_volume_bytes(const struct sw_snap *snap);

/* ---- units.c ---- */
/* Hands captured units to the sinks. */
void snap_units_give(struct sw_snap *snap);
bool snap_units_are_held(const struct sw_snap *snap);

/* ---- save.c ---- */
/* All that can go on, does. */
void snap_save_step(struct sw_snap *snap);
/* The snapshot of a step has this token on all ranks. */
void snap_save_token(const struct sw_snap *snap, uint64_t step, uint8_t token[SNAP_TOKEN_BYTES]);
/* By what the capture has come to, from the gate or the thread of I/O. */
void snap_save_look(struct sw_snap *snap);

/* ---- thread.c ---- */
void *snap_session_run(void *snap);

#endif
