/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Snapshots of a program's state, taken over RDMA while the program goes on: mostly for training.
 * docs/snapshot.md has a start in five minutes; docs/snapshot-format.md has the bytes.
 *
 *     sw_snap_options_init(&options);
 *     options.sinks = (const char *[]){"peer:192.0.2.2/run", "file:/data/run.snap"};
 *     options.sinks_count = 2;
 *     sw_snap_open(&options, &error, &snap);
 *     sw_snap_describe(snap, ranges, ranges_count, &error);
 *     for (step = 0;; step++) {
 *         compute_gradients();                      copies of the last step's state are made beside
 *         sw_snap_gate(snap, SW_SNAP_HELP, 0);      before the state is written again
 *         update_weights();
 *         if (step % 10 == 0)
 *             sw_snap_begin(snap, &(struct sw_snap_point){.step = step}, &error);
 *     }
 *
 * The state is a list of ranges of memory. Between begin and the end of gate the program does not
 * write to them. Helper threads copy them into a ring meanwhile, and sum each block; at the gate
 * all is looked at once more. What was written between is copied again; what does not stand still
 * is TORN, and that snapshot is never committed.
 *
 * A snapshot is durable when as many sinks as `quorum` says have checked its sums, have it where it
 * outlives what their kind outlives, and all ranks have said so. Restoring never sees another one
 * than a whole one, acknowledged or newer.
 *
 * A handle has threads of its own: they copy, and they talk to the sinks. Any thread may call, one
 * at a time. Nothing that fails here ends the program: a snapshot that fails is counted and told,
 * and the last good one stays. A child of fork() has no part in it: all calls say SW_SNAP_FORKED.
 *
 * Units are in the names. Deadlines are CLOCK_MONOTONIC in nanoseconds; 0: there is none.
 */
#ifndef SIDEWIRE_SNAPSHOT_H
#define SIDEWIRE_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SW_SNAP_PUBLIC __attribute__((visibility("default")))

struct sw_snap;        /* what takes snapshots of this process */
struct sw_snap_reader; /* what reads those that are there */

enum sw_snap_status {
    SW_SNAP_OK = 0,
    SW_SNAP_AGAIN,         /* not yet, or there is none */
    SW_SNAP_TIMEOUT,       /* the deadline has passed; what was waited for goes on */
    SW_SNAP_INVALID,       /* an argument is wrong */
    SW_SNAP_BUSY,          /* the one before is still under way */
    SW_SNAP_SKIPPED,       /* the gate gave this snapshot up, as it was told to */
    SW_SNAP_TORN,          /* state was written between begin and gate; the text names it */
    SW_SNAP_NO_MEMORY,     /* memory, or room in the RDMA device */
    SW_SNAP_NO_ROOM,       /* a sink has not so much room; told before anything is copied */
    SW_SNAP_NO_QUORUM,     /* too few sinks have it */
    SW_SNAP_ADDRESS,       /* no such address, file or namespace */
    SW_SNAP_REFUSED,       /* the sink refused this program */
    SW_SNAP_FENCED,        /* another program has taken over that name */
    SW_SNAP_LOST,          /* a sink does not answer any more */
    SW_SNAP_CORRUPT,       /* bytes have another sum than they had; the text says where */
    SW_SNAP_FORMAT,        /* what is there is no volume of snapshots, or a damaged one */
    SW_SNAP_VERSION,       /* it is of another version of the format or protocol */
    SW_SNAP_NOT_FOUND,     /* there is no such snapshot, or entry */
    SW_SNAP_OTHER_STATE,   /* name, type or shape are others than in the snapshot */
    SW_SNAP_OTHER_RANK,    /* a rank has failed, or has begun another step */
    SW_SNAP_NOT_SUPPORTED, /* this host, sink or build cannot do it */
    SW_SNAP_FORKED,        /* the handle belongs to the parent of this process */
    SW_SNAP_SYSTEM,        /* the operating system or the RDMA device failed */
};

/* A sentence without its full stop; never NULL. */
SW_SNAP_PUBLIC const char *sw_snap_status_text(enum sw_snap_status status);

struct sw_snap_error {
    enum sw_snap_status status;
    char text[512]; /* what happened, and why */
};

SW_SNAP_PUBLIC uint64_t sw_snap_deadline_ms(uint32_t from_now_ms);

/* ---- the state ---- */

enum {
    SW_SNAP_NAME_MAX = 255,
    SW_SNAP_DIMS_MAX = 8,
    SW_SNAP_SINKS_MAX = 3,
    SW_SNAP_RANKS_MAX = 64
};

/* A part of the state, the bytes of one storage. Tensors that share a storage are given once. */
struct sw_snap_range {
    const char *name; /* UTF-8, up to 255 bytes; unique in the state of a rank */
    void *data;       /* never written to here. It stays mapped until the next describe or close: a
                         range that vanishes amid a capture makes that TORN. For its faults there
                         are handlers of SIGSEGV and SIGBUS while a handle is open; all others go
                         to those that were there before */
    uint64_t bytes;
    /* What the bytes are: kept, compared when restored, exported. All of it may be 0. */
    const char *type; /* as safetensors calls it: "F32", "BF16", "I64", "U8"; NULL: "U8" */
    uint32_t dims;
    uint64_t shape[SW_SNAP_DIMS_MAX];
    /* Where it lies in a tensor of which each rank has a part; `whole` all 0: it is the whole. */
    uint64_t at[SW_SNAP_DIMS_MAX], whole[SW_SNAP_DIMS_MAX];
};

/* ---- options ---- */

enum sw_snap_look {
    SW_SNAP_LOOK_SUMS = 0, /* all is summed before it is copied, and each copy is compared */
    SW_SNAP_LOOK_PAGES,    /* the kernel tells which pages were written (Linux 6.7); else sums */
    SW_SNAP_LOOK_NEVER,    /* for a program that is known to keep the rule: nothing is proved */
};

struct sw_snap_options {
    /* "file:PATH", "peer:ADDR[:PORT]/NAME", "pmem:ADDR[:PORT]/REGION",
     * "nvme:ADDR[:PORT]/NQN[/NSID]". "{rank}" in it is the number of the rank. */
    const char *const *sinks;
    uint32_t sinks_count;  /* 1-3 */
    uint32_t quorum;       /* so many make it durable; 0: all */
    uint64_t ring_bytes;   /* memory for copies; the gate waits for sinks where it is too small */
    uint32_t unit_bytes;   /* of a copy: a power of two, 1-4 MiB */
    uint32_t helpers;      /* threads that copy, 1-16 */
    uint32_t keep;         /* so many snapshots stay, 1-30 */
    uint64_t volume_bytes; /* of a sink that is made anew; 0: enough for two of the state */
    enum sw_snap_look look;
    uint32_t looks_max; /* at all, once something has changed; what changes still is TORN */
    const char *local;  /* address of the RDMA device here; NULL: as the sink's needs */
    uint32_t connect_timeout_ms; /* of a sink */
    uint32_t stall_timeout_ms;   /* a sink that confirms nothing for so long is lost */
    bool take_over;              /* another program that writes under this name is fenced */
    bool may_write;              /* a reader repairs what is damaged; no trainer may be there */
    /* Several ranks begin the same steps, all of them. `meet` as in sw_coll_options. Launchers tell
     * it all: sw_snap_options_from_launcher(). */
    uint32_t rank, world; /* world 0 or 1: alone */
    const char *meet;     /* ADDR:PORT where the ranks meet; NULL: as launchers tell */
    uint32_t rank_timeout_ms;
};

/* 256 MiB of ring, 2 MiB units, one helper, 2 kept, sums, 2 looks, 5 s, 10 s, 60 s for ranks. */
SW_SNAP_PUBLIC void sw_snap_options_init(struct sw_snap_options *options);

/* Sets rank and world by what has started this process: mpirun, srun, torchrun and others, those of
 * sw_coll_launch_find(). The ranks meet as that says, too, so `meet` stays NULL. All ranks call it;
 * it waits for rank_timeout_ms of the options at most. INVALID: nothing has started ranks. */
SW_SNAP_PUBLIC enum sw_snap_status sw_snap_options_from_launcher(struct sw_snap_options *options,
                                                                 struct sw_snap_error *error);

/* ---- taking them ---- */

/* Connects to the sinks, makes those that are not there, and takes over the name. All ranks call
 * it. `error` may be NULL, here and below. */
SW_SNAP_PUBLIC enum sw_snap_status sw_snap_open(const struct sw_snap_options *options,
                                                struct sw_snap_error *error, struct sw_snap **snap);
/* Gives up what is not durable yet, ends the threads, frees the handle. */
SW_SNAP_PUBLIC void sw_snap_close(struct sw_snap *snap);
/* Says what the state is, in place of what was said before; copied, but for the data. BUSY while a
 * snapshot is being captured. */
SW_SNAP_PUBLIC enum sw_snap_status sw_snap_describe(struct sw_snap *snap,
                                                    const struct sw_snap_range *ranges,
                                                    uint32_t ranges_count,
                                                    struct sw_snap_error *error);

struct sw_snap_point {
    uint64_t step; /* larger than that of the one before */
    /* Small state, copied at once: position, random states, a scheduler. JSON, or any bytes. */
    const void *small;
    uint32_t small_bytes; /* up to 16 MiB */
};

/* Begins a snapshot of the state as it is now, and returns at once. NO_ROOM, LOST and FENCED are
 * told before anything is copied. BUSY: the one before is under way on a sink. */
SW_SNAP_PUBLIC enum sw_snap_status
sw_snap_begin(struct sw_snap *snap, const struct sw_snap_point *point, struct sw_snap_error *error);

enum sw_snap_gate {
    SW_SNAP_WAIT = 1, /* sleeps until the helpers have copied all */
    SW_SNAP_HELP,     /* copies with them */
    SW_SNAP_SKIP,     /* gives the snapshot up if anything is left to copy */
};

/* Before the state is written to: OK where it may be, since all is captured, or there is nothing to
 * capture. SKIPPED, TORN, LOST and others: it may be written to, and the snapshot has failed. */
SW_SNAP_PUBLIC enum sw_snap_status sw_snap_gate(struct sw_snap *snap, enum sw_snap_gate how,
                                                uint64_t deadline_ns);
/* The same for some ranges by their numbers in describe, which are copied first: tensor by tensor.
 * The last look comes with the gate of the last one. */
SW_SNAP_PUBLIC enum sw_snap_status sw_snap_gate_ranges(struct sw_snap *snap, enum sw_snap_gate how,
                                                       uint32_t first, uint32_t count,
                                                       uint64_t deadline_ns);

enum sw_snap_stage {
    SW_SNAP_IDLE,      /* none was begun */
    SW_SNAP_CAPTURING, /* until the end of the gate */
    SW_SNAP_STAGED,    /* the program may write; the sinks get it now */
    SW_SNAP_DURABLE,   /* acknowledged */
    SW_SNAP_FAILED,    /* see the status; the last good one stays */
};

struct sw_snap_sink_info {
    char sink[128]; /* as in the options, without {rank} */
    bool is_live;
    bool has_newest;            /* it has confirmed the snapshot of `step` */
    uint64_t bytes, free_bytes; /* of the volume */
    uint64_t written_bytes;     /* in all */
    struct sw_snap_error error; /* why it is not live */
    char note[256]; /* what it promises less than others of its kind: a sentence, or "" */
};

struct sw_snap_info {
    enum sw_snap_stage stage; /* of the newest that was begun */
    struct sw_snap_error error;
    uint64_t step, durable_step; /* the newest begun, the newest durable */
    bool has_durable;
    uint64_t state_bytes, copied_bytes, changed_bytes, moved_bytes; /* of the newest */
    /* CLOCK_MONOTONIC; 0: not yet. `stored`: all bytes of this rank outlive what its sinks outlive;
     * what is left is that they count, here and on the other ranks. */
    uint64_t begun_ns, staged_ns, stored_ns, durable_ns;
    uint64_t gate_ns, gate_bytes; /* the caller's wait, and what was left to copy then */
    /* Snapshots since open: each is one of these in the end. `taken`: they became durable. */
    uint64_t taken, failed, skipped, torn;
    uint32_t sinks_count;
    struct sw_snap_sink_info sinks[SW_SNAP_SINKS_MAX];
};

SW_SNAP_PUBLIC void sw_snap_info_of(struct sw_snap *snap, struct sw_snap_info *info);
/* Until the newest is staged or durable (OK), has failed (why), or the deadline passes. IDLE: until
 * no sink has anything to do with it, however it ended. A next one may begin after DURABLE as well,
 * unless a sink beyond the quorum is still getting this one (BUSY). */
SW_SNAP_PUBLIC enum sw_snap_status sw_snap_wait(struct sw_snap *snap, enum sw_snap_stage stage,
                                                uint64_t deadline_ns, struct sw_snap_error *error);
/* Readable when a snapshot has become durable or failed since the last sw_snap_info_of(). */
SW_SNAP_PUBLIC int sw_snap_fd(const struct sw_snap *snap);

/* ---- reading them ---- */

struct sw_snap_entry {
    uint64_t step;
    uint8_t token[16]; /* the same on all ranks */
    uint32_t world;
    uint64_t bytes;           /* of the state of all ranks */
    uint64_t taken_at;        /* CLOCK_REALTIME, seconds */
    uint32_t copies, damaged; /* sinks that have it whole; that have a part of it alone */
    bool is_whole;            /* there is a copy of it for each rank */
};

/* Opens what the sinks have, of all ranks: sinks, local and timeouts of the options. Damaged
 * volumes are told by `error` and left out, as long as one can be read. */
SW_SNAP_PUBLIC enum sw_snap_status sw_snap_reader_open(const struct sw_snap_options *options,
                                                       struct sw_snap_error *error,
                                                       struct sw_snap_reader **reader);
SW_SNAP_PUBLIC void sw_snap_reader_close(struct sw_snap_reader *reader);
/* Newest first; returns how many there are. */
SW_SNAP_PUBLIC uint32_t sw_snap_list(struct sw_snap_reader *reader, struct sw_snap_entry *entries,
                                     uint32_t entries_max);
/* Chooses one to be read: of that step, or the newest that is whole where `step` is NULL.
 * NOT_FOUND: there is none. If there is none on the sinks that could be read, and others could not,
 * it is the error of these. */
SW_SNAP_PUBLIC enum sw_snap_status sw_snap_choose(struct sw_snap_reader *reader,
                                                  const uint64_t *step, struct sw_snap_entry *entry,
                                                  struct sw_snap_error *error);

struct sw_snap_item {
    char name[SW_SNAP_NAME_MAX + 1], type[16];
    uint32_t rank; /* that has it */
    uint64_t bytes;
    uint32_t dims;
    uint64_t shape[SW_SNAP_DIMS_MAX], at[SW_SNAP_DIMS_MAX], whole[SW_SNAP_DIMS_MAX];
};

/* How many ranges all ranks have in the chosen one; a range by its number, and by its name. */
SW_SNAP_PUBLIC uint32_t sw_snap_items(const struct sw_snap_reader *reader);
SW_SNAP_PUBLIC enum sw_snap_status sw_snap_item_of(const struct sw_snap_reader *reader,
                                                   uint32_t number, struct sw_snap_item *item);
SW_SNAP_PUBLIC enum sw_snap_status sw_snap_find(const struct sw_snap_reader *reader, uint32_t rank,
                                                const char *name, uint32_t *number);
/* The small state of a rank. With `bytes` NULL, `*length` is what is needed. */
SW_SNAP_PUBLIC enum sw_snap_status sw_snap_small(struct sw_snap_reader *reader, uint32_t rank,
                                                 void *bytes, size_t capacity, size_t *length,
                                                 struct sw_snap_error *error);

struct sw_snap_piece {
    uint32_t number;        /* of the item */
    uint64_t offset, bytes; /* in it */
    void *into;
};

/* Reads pieces, from the nearest good copy; each block's sum is compared. A copy that is damaged is
 * left for the next one, and repaired where the reader may write. CORRUPT: no copy is good; the
 * text says which bytes of which item. */
SW_SNAP_PUBLIC enum sw_snap_status sw_snap_read(struct sw_snap_reader *reader,
                                                const struct sw_snap_piece *pieces,
                                                uint32_t pieces_count, struct sw_snap_error *error);

/* ---- looking after them ---- */

/* Bytes that are not what they were, or a sink that cannot be read. */
struct sw_snap_finding {
    char sink[128]; /* with the rank in place of {rank} */
    uint32_t rank;
    uint64_t step;
    uint64_t block;  /* of the volume, 4,096 bytes each; 0: no single one */
    char where[384]; /* "bytes 4096-8191 of layer.0.weight", "the index" */
    bool is_repaired;
};

struct sw_snap_scan {
    bool repair;          /* from a good copy on another sink; the reader may write */
    const uint64_t *step; /* looks at this one alone; NULL: at all */
    /* Both may be NULL. */
    void (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void (*finding)(void *context, const struct sw_snap_finding *finding);
    void *context;
};

struct sw_snap_scan_result {
    uint64_t bytes;             /* that were read, of all copies */
    uint64_t damaged, repaired; /* findings */
    uint32_t volumes;           /* that were looked at */
};

/* Reads all copies of all snapshots and compares their sums. CORRUPT: something is damaged and was
 * not repaired. Where all is well that was read, and sw_snap_reader_open() had to leave a sink out,
 * the status is that sink's: its copies are not proved. What was chosen before has to be chosen
 * again. */
SW_SNAP_PUBLIC enum sw_snap_status sw_snap_scan(struct sw_snap_reader *reader,
                                                const struct sw_snap_scan *scan,
                                                struct sw_snap_scan_result *result,
                                                struct sw_snap_error *error);
/* Forgets a snapshot on all sinks, for all ranks. The reader may write. */
SW_SNAP_PUBLIC enum sw_snap_status sw_snap_forget(struct sw_snap_reader *reader, uint64_t step,
                                                  struct sw_snap_error *error);

#ifdef __cplusplus
}
#endif
#endif
