/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A tier: FILE, and before it a log of which one to five copies are kept. A write is done when it
 * is persistent in the log on a quorum of them; it is destaged to FILE later. docs/nvme-tier.md
 * says what that promises.
 *
 * The threads of a target share a tier. All that is in `struct nvt_tier` is guarded by its lock,
 * which is held for moments: between nvt_tier_enter() and nvt_tier_leave() nothing waits. What
 * calls out (FILE, whoever asked) is collected in the turn and done when the lock has been
 * released.
 */
#ifndef SW_MOVERS_NVME_TIER_H
#define SW_MOVERS_NVME_TIER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/uring/ring.h"
#include "nvme/target/backend/backend.h"
#include "nvme/target/backend/owed.h"
#include "nvme/target/backend/uring.h"
#include "nvme/target/tier/destage.h"
#include "nvme/target/tier/index.h"
#include "nvme/target/tier/log.h"

enum {
    NVT_TIER_FLIGHTS = 16, /* writes of a copy under way */
    NVT_TIER_FLIGHT_BYTES = 512 << 10,
    NVT_TIER_RUNS = 32, /* writes to FILE under way: as deep as disks like it */
    NVT_TIER_RUN_BYTES = 64 << 10,
    NVT_TIER_TROUBLE_BYTES = 384,
};

struct nvt_tier;
struct nvt_tier_fetch;
struct nvt_tier_medium;

/* A read or a write of a copy's medium. */
struct nvt_tier_move {
    struct mover_ring_op op; /* of media that use io_uring */
    struct nvt_tier_medium *medium;
    struct nvt_uring *uring; /* of the thread that began it */
    bool is_write;           /* persistent when it ends */
    uint64_t at;
    void *data;
    uint32_t bytes, moved;
    int result;                                           /* 0 or a negative errno */
    void (*done)(struct nvt_tier_move *move, int result); /* the lock is held */
    struct nvt_tier_move *next;                           /* of the medium */
};

struct nvt_tier_medium_ops {
    /* Waits until it is done; before anything was begun. 0 or a negative errno. */
    int (*now)(struct nvt_tier_medium *medium, bool is_write, uint64_t at, void *data,
               uint32_t bytes);
    /* Memory that moves use. NULL: any will do. 0 or a negative errno. */
    int (*use)(struct nvt_tier_medium *medium, void *data, uint64_t bytes);
    /* True: it has ended, with its result. Else done() comes later. Moves of a medium may end in
     * any order. */
    bool (*start)(struct nvt_tier_medium *medium, struct nvt_tier_move *move);
    /* Looks for what has ended. NULL: there is no need. True: something goes on. */
    bool (*poll)(struct nvt_tier_medium *medium);
    /* Takes the next pages of one that is new, for some hundred microseconds. False: it has all of
     * them, or takes the rest when they are written. NULL: there is nothing to take. */
    bool (*warm_up)(struct nvt_tier_medium *medium);
    /* Why it cannot be had. NULL: the errno of its moves says all. */
    void (*why)(struct nvt_tier_medium *medium, char *out, size_t size);
    /* It is another target's from now on: nothing is moved any more. NULL: that cannot be. */
    void (*yield)(struct nvt_tier_medium *medium);
    void (*close)(struct nvt_tier_medium *medium);
};

struct nvt_tier_medium {
    const struct nvt_tier_medium_ops *ops;
    uint32_t writes_max; /* that help it, at a time */
    struct nvt_tier *tier;
    const char *name; /* as the user wrote it; outlives it */
    uint64_t size_bytes;
    bool is_volatile; /* gone with the power */
};

enum nvt_tier_copy_state { NVT_TIER_LIVE, NVT_TIER_BEHIND, NVT_TIER_LOST, NVT_TIER_BROKEN };

/* A part of the stage on its way to a copy. */
struct nvt_tier_flight {
    struct nvt_tier_move move; /* must be first */
    struct nvt_tier_copy *copy;
    uint64_t end;
    bool is_done;
};

struct nvt_tier_copy {
    struct nvt_tier *tier;
    struct nvt_tier_medium *medium; /* NULL: it could not be opened */
    const char *name;               /* as the user wrote it */
    enum nvt_tier_copy_state state;
    int error;              /* why it is lost, an errno */
    uint64_t sent, durable; /* positions */
    struct nvt_tier_flight flights[NVT_TIER_FLIGHTS];
    uint32_t first_flight, flights_count;
    struct nvt_tier_move slot_move;
    uint8_t slot_bytes[NVT_TIER_SLOT_BYTES];
    bool is_slot_moving, is_slot_written; /* the newest one */
    uint64_t slot_count;                  /* of the one that moves */
    /* What is behind is copied from another one, a piece at a time. */
    struct nvt_tier_move catch_up;
    uint8_t *catch_up_piece;
    bool is_new;                     /* it had nothing when the log was opened */
    bool is_catching_up, needs_look; /* at its slots: another writer may have been there */
    uint64_t flown_ns;               /* when its oldest flight began */
    struct nvt_tier_slot slot;       /* as found */
    struct nvt_tier_super super;
    uint64_t found_end, found_check, found_epoch;
};

/* One operation of a host. */
struct nvt_tier_op {
    struct list_node node; /* of what waits for room, or for the log; spare ones by `next` */
    struct nvt_tier_op *next, *all;
    struct nvt_tier *tier;
    struct nvt_io *io;
    uint16_t status;
    uint64_t first, end; /* positions: of its first record, and behind its last one */
    uint64_t end_check;
    uint64_t offset, len_bytes; /* of the write: `io` is its owner's once it was answered */
    enum nvt_tier_kind kind;
    uint32_t extents;    /* that were promised to it */
    uint64_t cursor;     /* how much of it is in the log, or was looked for there */
    struct nvt_io lower; /* of FILE */
    uint32_t parts_left; /* READ: of the log, under way */
    bool is_reader;      /* counted in readers[parity] */
    bool has_file, wants_file, is_laying;
    uint32_t parity;
    uint32_t version; /* of the cache, when FILE was asked */
};

/* A thread that uses the tier. */
struct nvt_tier_seat {
    struct nvt_poller poller; /* must be first */
    struct nvt_tier *tier;
    struct nvt_uring *uring;
    struct nvt_tier_seat *next;
    uint32_t quiet_turns;
    struct nvt_io *ended; /* by other threads: as of a turn */
};

/* What the thread that has the lock does when it has released it. */
struct nvt_tier_turn {
    struct nvt_uring *uring;
    struct nvt_io *ended; /* linked by `owner`, their statuses in `moved`; the last one first */
    struct nvt_io *lower; /* to be submitted to FILE: linked by `user`; the last one first */
};

/* A write to FILE. */
struct nvt_tier_run {
    struct nvt_tier *tier;
    bool is_busy;
    enum nvt_tier_kind kind;
    uint64_t offset, len_bytes;
    uint32_t reads_left;
    int error;
    uint8_t *data;
    struct nvt_io lower;
};

/* What is wanted of a record's payload, and for whom. */
struct nvt_tier_part {
    struct nvt_tier_extent extent;
    uint32_t skip_bytes, bytes;
    uint8_t *to;
    struct nvt_tier_run *run; /* one of these */
    struct nvt_tier_op *op;
    /* Gives `fetch` back. The lock is held. */
    void (*done)(struct nvt_tier_fetch *fetch, int result);
};

/* A read of the log. */
struct nvt_tier_fetch {
    struct nvt_tier_move move; /* must be first */
    struct nvt_tier_fetch *next, *all;
    void (*done)(struct nvt_tier_fetch *fetch, int result); /* the lock is held */
    struct nvt_tier *tier;
    struct nvt_tier_part part; /* of those that read whole records */
    uint8_t *to;
    uint64_t position; /* in the log */
    uint32_t bytes, moved;
    uint32_t copies_tried; /* a bit for each */
    bool is_damaged;       /* one of them has something else there, or its medium failed */
    int copy;              /* that is asked; -1: the next one that has it */
    uint32_t mends;        /* which copy gets it */
    uint8_t *place;        /* [place_bytes], for a whole record */
    uint32_t place_bytes;
    struct nvt_io lower; /* of FILE, for what is damaged */
};

enum nvt_tier_phase {
    NVT_TIER_WALKING, /* finds what the log has; all wait */
    NVT_TIER_SERVING,
    NVT_TIER_FAILED, /* writes end with an error, reads go on */
};

struct nvt_tier_counts {
    uint64_t destaged_bytes, file_writes, waits, replayed_records, log_reads;
};

struct nvt_tier {
    pthread_mutex_t lock;
    struct nvt_backend *file;
    uint64_t size_bytes;
    struct nvt_tier_turn *turn; /* NULL: nobody has the lock */
    /* Read without the lock: the next poll has something to do; when it looked at the clock. */
    _Atomic bool has_steps;
    _Atomic uint64_t ticked_ns;
    /* Hosts write, so FILE waits for their next bytes (destage.h), or until they are silent. Their
     * thread looks for that. When it wrote last. */
    _Atomic bool is_paced;
    _Atomic(const struct nvt_uring *) writer;
    _Atomic uint64_t wrote_ns;
    struct nvt_tier_seat *seats;
    enum nvt_tier_phase phase;
    char trouble[NVT_TIER_TROUBLE_BYTES]; /* why it has failed; what is damaged */
    bool hands_over;                      /* detach leaves what is dirty to another target */
    _Atomic int lost;                     /* an errno: another target has opened the log */
    bool is_whole;                        /* it was detached: the log has nothing that FILE lacks */
    struct nvt_io *leaver;
    bool drops_damaged; /* of the log: FILE keeps what it has there */
    uint64_t dropped_bytes, drops;

    struct nvt_tier_super super;
    uint32_t copies_count, quorum;
    bool polls_media; /* some of them */
    bool is_made;     /* the log was made by this start */
    struct nvt_tier_copy copies[NVT_TIER_COPIES_MAX];

    /* Positions: head <= acked <= end <= head + ring bytes. */
    uint64_t epoch, head, acked, end, end_check;
    uint64_t slowest;              /* the live copy that has least, as last seen */
    struct nvt_tier_mark answered; /* so far all is in the index, or gone from the log */
    uint8_t *stage; /* the log's last stage_bytes, up to `end`; nothing from before staged_from */
    uint64_t staged_from;
    struct nvt_tier_slot slot;
    void (*slot_done)(struct nvt_tier *tier); /* when all live copies have it; NULL: none waits */

    bool is_going_on, has_more; /* nvt_tier_go_on() */
    struct list waiting;        /* operations for room, in their order */
    struct list logging;        /* writes, in the order of their records */
    struct list answering;      /* answered; nvt_tier_enter() tells the index */
    struct nvt_tier_index index;
    struct nvt_tier_destage destage;
    uint32_t promised; /* extents that writes in `logging` may still add */
    uint32_t readers[2], parity;
    bool is_draining, is_flushing, is_stamping,
        is_trimming; /* what a step of destaging waits for */
    struct nvt_tier_run runs[NVT_TIER_RUNS];
    uint8_t *run_memory;
    struct nvt_tier_extent pieces[NVT_TIER_PIECES]; /* of the run that begins */
    uint32_t runs_busy;
    uint64_t run_end; /* of the log, when the last one began */
    bool wants_runs;  /* more of them may begin at the next poll */
    struct nvt_io flush;
    struct nvt_tier_fetch *spare_fetches;
    struct nvt_tier_fetch *stalled; /* the copies that have what they want are away */
    struct nvt_tier_op *spare_ops;
    struct nvt_tier_fetch *fetches; /* all that there are, by `all` */
    struct nvt_tier_op *ops;

    /* Looks at FILE, off the loop, and ends with nvt_tier_stamped(). NULL: it has no stamp. */
    void (*stamp)(struct nvt_tier *tier);
    void *owner; /* of stamp() */

    struct nvt_tier_walk *walk;
    struct nvt_tier_cache *cache; /* NULL: none */
    struct nvt_tier_counts counts;
    uint64_t now_ns;
};

struct nvt_tier_setup {
    struct nvt_backend *file;       /* stays the caller's */
    struct nvt_uring *uring;        /* of the first thread; NULL: tests */
    struct nvt_tier_medium **media; /* [copies_count], NULL: cannot be had now; then the tier's */
    const char *const *names;       /* [copies_count], of the copies; they outlive the tier */
    uint32_t copies_count;
    struct nvt_tier_stamp stamp;         /* of FILE as it is now */
    void (*look)(struct nvt_tier *tier); /* as `stamp` of the tier */
    void *owner;
    uint64_t cache_bytes;
    bool hands_over;             /* detach leaves what is dirty to another target */
    bool makes_anew;             /* whatever is there is lost */
    bool drops_damaged;          /* FILE keeps what it has where a record is damaged */
    uint8_t identity[16];        /* of a new log */
    const struct nvt_owed *owed; /* FILE's mark; NULL: it has none */
};

/* Reads superblocks and slots (which may take as long as the media do), and begins to walk the log:
 * the first poll goes on with it. 0, or a negative errno and why. */
int nvt_tier_open(const struct nvt_tier_setup *setup, struct nvt_tier **out, char *error,
                  size_t error_size);
/* Nothing may be under way: nvt_tier_detach() has ended, or nothing was begun. */
void nvt_tier_close(struct nvt_tier *tier);
void nvt_tier_submit(struct nvt_tier *tier, struct nvt_io *io);
/* Destages all; done() with 0 when FILE is whole and the log empty, else an error. One that hands
 * over ends what is under way, and no more: always an error. */
void nvt_tier_detach(struct nvt_tier *tier, struct nvt_io *io);
/* What goes on without a host; each thread's poller calls it. True: there was something. */
bool nvt_tier_poll(struct nvt_tier *tier, struct nvt_tier_seat *seat);

/* What the log has was found. */
bool nvt_tier_is_ready(struct nvt_tier *tier);

struct nvt_tier_status {
    uint64_t log_bytes, used_bytes, dirty_bytes, oldest_ns; /* the age */
    uint64_t cache_bytes, cache_hits, cache_misses, log_hits;
    struct nvt_tier_counts counts;
    enum nvt_tier_phase phase;
    uint32_t copies_count;
    struct {
        char name[128];
        enum nvt_tier_copy_state state;
    } copies[NVT_TIER_COPIES_MAX];
    char trouble[NVT_TIER_TROUBLE_BYTES];
};
void nvt_tier_status_of(struct nvt_tier *tier, struct nvt_tier_status *status);

#endif
