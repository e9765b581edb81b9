/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A log of records that is kept on one to five regions of persistent memory (<sidewire/pmem.h>).
 * An append is acknowledged when its record is persistent on more than half of them.
 * docs/pmem-log.md has the format, and what is promised.
 *
 * A log has one writer at a time: a writer that opens it ends the sessions of all others that may
 * write to its regions, and a writer that it replaces stops with FENCED. One thread may use a log
 * at a time. There are no hidden threads: things go on only while somebody calls poll, wait or a
 * call with a deadline. Appending does not allocate memory.
 *
 * A child of fork() has no part in its parent's logs and readers: all that it calls with one says
 * SW_PMEM_LOG_FORKED, or does nothing. It may close them, which the parent does not notice.
 *
 * Deadlines are CLOCK_MONOTONIC in nanoseconds: sw_pmem_deadline_ms().
 */
#ifndef SIDEWIRE_PMEM_LOG_H
#define SIDEWIRE_PMEM_LOG_H

#include "sidewire/pmem.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sw_pmem_log;

enum { SW_PMEM_LOG_COPIES_MAX = 5, SW_PMEM_LOG_WINDOW_MAX = 64 };

enum sw_pmem_log_status {
    SW_PMEM_LOG_OK = 0,
    SW_PMEM_LOG_AGAIN,      /* appends enough are under way, or there is no quorum now */
    SW_PMEM_LOG_FULL,       /* trim first */
    SW_PMEM_LOG_TOO_LONG,   /* more than the log's largest record, or than the buffer */
    SW_PMEM_LOG_END,        /* no more records */
    SW_PMEM_LOG_INVALID,    /* an argument is wrong */
    SW_PMEM_LOG_NO_LOG,     /* a region is without a log, or has another one */
    SW_PMEM_LOG_EXISTS,     /* a region has a log already */
    SW_PMEM_LOG_TIMEOUT,    /* the deadline has passed; an append may still happen */
    SW_PMEM_LOG_NOT_DONE,   /* the record is not in the log and never will be */
    SW_PMEM_LOG_MAYBE_DONE, /* another writer has the log: it knows */
    SW_PMEM_LOG_FENCED,     /* another writer has the log */
    SW_PMEM_LOG_DAMAGED,    /* copies have lost what they had flushed */
    SW_PMEM_LOG_COPY,       /* a copy cannot be reached: see the error's text */
    SW_PMEM_LOG_NO_MEMORY,
    SW_PMEM_LOG_TRIMMED, /* of a reader: what comes next was trimmed before it was read */
    SW_PMEM_LOG_FORKED,  /* the log or reader belongs to the parent of this process */
};

/* A sentence without its full stop; never NULL. */
SW_PMEM_PUBLIC const char *sw_pmem_log_status_text(enum sw_pmem_log_status status);

struct sw_pmem_log_options {
    const struct sw_pmem_options *copies; /* [copies_count], in the order in which it was created */
    uint32_t copies_count;                /* 1-5 */
    uint32_t window;      /* appends under way, 1-64; so many may be found unacknowledged */
    uint64_t stage_bytes; /* what a slow copy may be behind; divides the ring */
    bool visible_only;    /* flush for processors only: for memory that is not persistent */
};

/* Window 1, 0 for the largest stage up to 1 MiB that fits. */
SW_PMEM_PUBLIC void sw_pmem_log_options_init(struct sw_pmem_log_options *options);

struct sw_pmem_log_geometry {
    uint64_t ring_bytes;   /* of each copy, a multiple of 64 */
    uint32_t record_bytes; /* the largest payload; four such records fit into the ring */
};

/* Makes a new log on all copies; a quorum is more than half of them. Waits until it is persistent
 * everywhere. The former content of the regions is lost; if that is a log, only with `replace`.
 * One of the same geometry that was made in part, and that no writer has had, is completed: several
 * callers may make a log at a time, and one may die amid it. */
SW_PMEM_PUBLIC enum sw_pmem_log_status
sw_pmem_log_create(const struct sw_pmem_log_options *options,
                   const struct sw_pmem_log_geometry *geometry, bool replace, uint64_t deadline_ns,
                   struct sw_pmem_error *error);

/* Recovers the log: waits for a quorum of its copies. */
SW_PMEM_PUBLIC enum sw_pmem_log_status sw_pmem_log_open(const struct sw_pmem_log_options *options,
                                                        uint64_t deadline_ns,
                                                        struct sw_pmem_error *error,
                                                        struct sw_pmem_log **log);
/* Appends under way may or may not happen. */
SW_PMEM_PUBLIC void sw_pmem_log_close(struct sw_pmem_log *log);

/* A place between two records. */
struct sw_pmem_log_mark {
    uint64_t position, check, epoch;
    uint64_t sequence; /* of the record behind it */
};

struct sw_pmem_log_result {
    uint64_t user;
    enum sw_pmem_log_status status;
    struct sw_pmem_log_mark mark; /* behind the record, where status is OK */
};

/* OK: its result comes later, in the order of appends. The record was copied. */
SW_PMEM_PUBLIC enum sw_pmem_log_status sw_pmem_log_post(struct sw_pmem_log *log, const void *record,
                                                        uint32_t bytes, uint64_t user);
/* Handles what has come; never sleeps. */
SW_PMEM_PUBLIC void sw_pmem_log_poll(struct sw_pmem_log *log);
/* Until there is a result (OK) or the deadline has passed. */
SW_PMEM_PUBLIC enum sw_pmem_log_status sw_pmem_log_wait(struct sw_pmem_log *log,
                                                        uint64_t deadline_ns);
SW_PMEM_PUBLIC bool sw_pmem_log_take(struct sw_pmem_log *log, struct sw_pmem_log_result *result);
/* Posts and waits. No other append may be under way. With TIMEOUT the record may be acknowledged
 * later: its result has `user` 0 and has to be taken before the next append. */
SW_PMEM_PUBLIC enum sw_pmem_log_status sw_pmem_log_append(struct sw_pmem_log *log,
                                                          const void *record, uint32_t bytes,
                                                          uint64_t deadline_ns,
                                                          struct sw_pmem_log_mark *mark);

/* Where reading starts. */
SW_PMEM_PUBLIC void sw_pmem_log_head(const struct sw_pmem_log *log, struct sw_pmem_log_mark *mark);
/* Reads the acknowledged record behind `mark` and moves `mark` behind it. END: there is none. */
SW_PMEM_PUBLIC enum sw_pmem_log_status sw_pmem_log_read(struct sw_pmem_log *log,
                                                        struct sw_pmem_log_mark *mark, void *record,
                                                        uint32_t bytes_max, uint32_t *bytes,
                                                        uint64_t deadline_ns);
/* Forgets all before `mark`. It is a hint: after a cut of the power they may be there again. */
SW_PMEM_PUBLIC enum sw_pmem_log_status sw_pmem_log_trim(struct sw_pmem_log *log,
                                                        const struct sw_pmem_log_mark *mark);

enum sw_pmem_log_copy_state {
    SW_PMEM_LOG_COPY_LOST,   /* its server refused the connection, or the connection has ended */
    SW_PMEM_LOG_COPY_BEHIND, /* is being read, or brought up to date */
    SW_PMEM_LOG_COPY_LIVE,
    SW_PMEM_LOG_COPY_DAMAGED, /* has lost what it had flushed, or is not of this log */
    SW_PMEM_LOG_COPY_SILENT,  /* has not answered yet */
    SW_PMEM_LOG_COPY_UNSURE,  /* answers, but too few others do to say how far it is */
};

struct sw_pmem_log_info {
    uint64_t ring_bytes, used_bytes, epoch;
    uint64_t first_sequence, next_sequence; /* records of acknowledged appends */
    uint32_t record_bytes, copies, quorum;
    bool ready; /* appends are taken */
    enum sw_pmem_log_copy_state states[SW_PMEM_LOG_COPIES_MAX];
};

SW_PMEM_PUBLIC void sw_pmem_log_info_of(const struct sw_pmem_log *log,
                                        struct sw_pmem_log_info *info);

/* ---- reading beside the writer ----
 *
 * A reader follows a log that somebody else writes. It needs the right to read alone, changes
 * nothing, and the writer does not notice it. It sees a record as soon as a quorum of copies shows
 * that it is acknowledged; no recovery finds less than what a reader has seen. */

struct sw_pmem_log_reader;

/* Uses the copies of `options` alone, and waits for a quorum of them. */
SW_PMEM_PUBLIC enum sw_pmem_log_status
sw_pmem_log_reader_open(const struct sw_pmem_log_options *options, uint64_t deadline_ns,
                        struct sw_pmem_error *error, struct sw_pmem_log_reader **reader);
SW_PMEM_PUBLIC void sw_pmem_log_reader_close(struct sw_pmem_log_reader *reader);
/* The longest record that the log can have. */
SW_PMEM_PUBLIC uint32_t sw_pmem_log_reader_record_bytes(const struct sw_pmem_log_reader *reader);
/* Where the oldest record starts that is there. DAMAGED: so many copies have answered and have none
 * that no quorum is left. */
SW_PMEM_PUBLIC enum sw_pmem_log_status sw_pmem_log_reader_head(struct sw_pmem_log_reader *reader,
                                                               struct sw_pmem_log_mark *mark,
                                                               uint64_t deadline_ns);
/* Reads the record behind `mark` and moves `mark` behind it; waits for it until the deadline. END:
 * none has come. TIMEOUT: too few copies could be asked, or none that has the record has answered:
 * there may be more. TRIMMED: `mark` has moved to the oldest record that is there, nothing was
 * read. DAMAGED: no copy has the record, or `mark` is none of this log. */
SW_PMEM_PUBLIC enum sw_pmem_log_status
sw_pmem_log_reader_next(struct sw_pmem_log_reader *reader, struct sw_pmem_log_mark *mark,
                        void *record, uint32_t bytes_max, uint32_t *bytes, uint64_t deadline_ns);
/* What a reader can see of the log: `used_bytes` and sequences are of what is acknowledged,
 * and all of it is read to learn them. A copy is LIVE that the log's last writer has
 * brought up to date, BEHIND where it has not, DAMAGED if it is not of this log. Records
 * that only recovery can find are not counted: those whose tail words a power cut has
 * taken. TIMEOUT: too few copies could be asked, or a writer died in its recovery.
 * DAMAGED: too many are. The states are set all the same. A copy that does not answer is
 * waited for a second. */
SW_PMEM_PUBLIC enum sw_pmem_log_status sw_pmem_log_reader_info_of(struct sw_pmem_log_reader *reader,
                                                                  struct sw_pmem_log_info *info,
                                                                  uint64_t deadline_ns);
/* Opens a reader, tells what it sees, and closes it: what each copy says also where no quorum of
 * them answers. Then `copies`, `quorum` and `states` are set, and the status says why no more is.
 * `copies` is 0 where no copy could be asked. `errors` [copies_count] says why a copy is LOST or
 * SILENT, or, without a quorum, DAMAGED: then its status is OTHER_REGION where the copy is one of
 * another log, or another one of this log. It is empty otherwise. */
SW_PMEM_PUBLIC enum sw_pmem_log_status sw_pmem_log_survey(const struct sw_pmem_log_options *options,
                                                          uint64_t deadline_ns,
                                                          struct sw_pmem_log_info *info,
                                                          struct sw_pmem_error *errors,
                                                          struct sw_pmem_error *error);

#ifdef __cplusplus
}
#endif
#endif
