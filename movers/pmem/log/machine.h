/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One writer of a replicated log, as docs/pmem-log.md has it: a machine without network or clock.
 * It says what to do on which copy; its driver posts that in order on a queue for each copy, and
 * tells of completions, and of copies lost and found. It allocates nothing. It has one owner and no
 * lock.
 */
#ifndef SW_MOVERS_PMEM_LOG_MACHINE_H
#define SW_MOVERS_PMEM_LOG_MACHINE_H

#include "pmem/log/layout.h"

enum {
    PML_OPS_MAX = 64,
    PML_GROUPS_MAX = 32,
    PML_WINDOW_MAX = 64,
    PML_TRAIL_MAX = PML_WINDOW_MAX + 1,
    PML_NOBODY = 0xff
};

/* More elections than there can have been while one copy was away: at 1 ms each, 34 years. */
#define PML_EPOCH_LEAP (1ull << 40)

enum pml_verb {
    PML_READ,
    PML_WRITE,
    PML_FLUSH,   /* persistent */
    PML_PUBLISH, /* ATOMIC WRITE of `word`, as it lies in memory */
};

struct pml_op {
    enum pml_verb verb;
    uint8_t copy;
    bool signals; /* pml_done() has to be called when it has completed */
    uint64_t offset, len_bytes;
    uint8_t *data; /* of READ and WRITE; in the machine's memory */
    uint64_t word;
};

enum pml_status {
    PML_OK,
    PML_AGAIN,      /* the window or the stage is full, or recovery is not done */
    PML_FULL,       /* the ring is full: trim */
    PML_TOO_LONG,   /* more than the log's largest payload */
    PML_NOT_DONE,   /* no recovery will find it */
    PML_MAYBE_DONE, /* fenced or broken meanwhile: the next recovery will see */
    PML_FENCED,     /* another writer has the log */
    PML_BROKEN,     /* copies contradict each other: some have lost what they had flushed */
};

struct pml_outcome {
    uint64_t user;
    enum pml_status status;
    struct pml_mark next; /* behind the record, where status is PML_OK */
};

enum pml_copy_state {
    PML_ABSENT,
    PML_DRAINING, /* till nothing of before is under way; then read anew */
    PML_READING,  /* words and slots */
    PML_SCANNING,
    PML_SCANNED,   /* `scan` is its end; waits for an election or for a source */
    PML_PROMISING, /* the new epoch is being written */
    PML_PROMISED,
    PML_MATCHING,   /* how far does it fit the log? */
    PML_RESETTING,  /* epoch, and tail 0 if records are written again */
    PML_RESLOTTING, /* the head slot */
    PML_COPYING,    /* `scan` moves towards the log's end */
    PML_SETTLING,   /* its settled word becomes the epoch */
    PML_LIVE,
    PML_BAD, /* see `verdict` */
};

/* Requests up to one that signals. `copy` is whom a fetch is for. */
enum pml_purpose {
    PML_FOR_CONTROL,
    PML_FOR_SCAN,
    PML_FOR_PROMISE,
    PML_FOR_MATCH,
    PML_FOR_RESET,
    PML_FOR_RESLOT,
    PML_FOR_FETCH,
    PML_FOR_COPY,
    PML_FOR_SETTLE,
    PML_FOR_APPEND,
    PML_FOR_TRIM,
};

struct pml_group {
    enum pml_purpose purpose;
    uint8_t copy;
    uint64_t position; /* of an append: its end; of a fetch or scan: the bytes read */
};

/* A record that a scan has passed. */
struct pml_passed {
    uint64_t position;
    struct pml_mark next; /* behind it */
};

struct pml_copy {
    enum pml_copy_state state;
    enum pml_verdict verdict;
    struct pml_op ops[PML_OPS_MAX]; /* not yet handed out */
    unsigned op_first, op_count;
    struct pml_group groups[PML_GROUPS_MAX];
    unsigned group_first, group_count;
    uint8_t *control, *chunk, *slot_line;
    bool found, chunk_busy, slot_busy, writes_chunk, has_settled;
    bool is_doubted; /* the others do not bear out its words: it is not asked for a promise */
    uint64_t epoch, tail, settled; /* its words */
    struct pml_slot slot;          /* persistent on it */
    struct pml_slot slot_to;       /* being written */
    struct pml_mark scan;
    /* The last records before it. A copy's records beyond the log were under way in one window, so
     * the record in which both still agree is among them, or has been trimmed. */
    struct pml_passed trail[PML_TRAIL_MAX];
    uint64_t passed; /* records; of these the last PML_TRAIL_MAX are in `trail` */
    /* Records of it that are compared: those from `first` to `low` are in the log. */
    uint64_t match_first, match_low, match_high;
    uint64_t probe;        /* record that is being compared */
    uint64_t posted, done; /* of a copy that is live */
};

struct pml_pending {
    uint64_t user;
    struct pml_mark next;
};

struct pml_config {
    struct pml_geometry geometry;
    uint32_t window;      /* appends under way, 1 to PML_WINDOW_MAX */
    uint64_t stage_bytes; /* divides the ring; at least two of the largest records */
    uint64_t chunk_bytes; /* of reading; at least one of the largest records */
};

struct pml_log {
    struct pml_config config;
    struct pml_copy copies[PML_COPIES_MAX];
    unsigned turn; /* whose request is handed out next */
    bool electing, established, recovered, fenced, broken, has_head, has_acked;
    bool is_patient; /* see pml_be_patient() */
    uint64_t epoch;
    uint8_t best;
    struct pml_mark head, end; /* of the log; `end` is that of what is staged */
    struct pml_mark found;     /* end of what recovery found */
    struct pml_mark acked;     /* end of what was acknowledged */
    uint64_t stage_base;
    uint8_t *stage, *scratch;
    struct pml_pending pending[PML_WINDOW_MAX];
    unsigned pending_first, pending_count;
    struct pml_outcome outcomes[PML_WINDOW_MAX];
    unsigned outcome_first, outcome_count;
};

/* Bytes of memory that the machine wants, registered; 0 if the configuration is not valid. */
uint64_t pml_memory_bytes(const struct pml_config *config);
void pml_init(struct pml_log *log, const struct pml_config *config, uint8_t *memory);

/* While it is patient, which is for its driver to say: no election before all copies are read. A
 * quorum would do, but all together show more of what is wrong with one of them. */
void pml_be_patient(struct pml_log *log, bool is_patient);
/* A copy is there, and no other writer can touch it any more. */
void pml_found(struct pml_log *log, unsigned copy);
/* Its queue is gone: requests that were handed out may or may not have happened, and nothing
 * touches their memory any more. */
void pml_lost(struct pml_log *log, unsigned copy);
/* The oldest request of this copy that signals has completed. */
void pml_done(struct pml_log *log, unsigned copy);
/* The next request to post; false: none now. */
bool pml_next(struct pml_log *log, struct pml_op *out);

/* PML_OK: its outcome comes later, in the order of appends. */
enum pml_status pml_append(struct pml_log *log, const void *payload, uint32_t len, uint64_t user);
bool pml_outcome(struct pml_log *log, struct pml_outcome *out);
/* Forgets records before `to`, a mark of an acknowledged record. */
enum pml_status pml_trim(struct pml_log *log, const struct pml_mark *to);

#endif
