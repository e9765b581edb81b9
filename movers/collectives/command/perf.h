/* SPDX-License-Identifier: BSD-2-Clause */
/* What `sidewire coll perf` was asked for, and one rank's part of it. */
#ifndef SW_COLLECTIVES_PERF_H
#define SW_COLLECTIVES_PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/command/pattern.h"
#include "sidewire/coll.h"

enum { CO_NOT_SAID = UINT32_MAX };

/* Behind the kinds of the library: each rank sends to the next one, and receives from the one
 * before it, in a group. */
#define CO_SENDRECV SW_COLL_KINDS

struct co_perf {
    enum sw_coll_kind kind;
    uint32_t type, op; /* SW_COLL_TYPES, SW_COLL_OPS: all of them */
    uint32_t order;    /* enum sw_coll_order */
    uint64_t min_bytes, max_bytes, step_bytes;
    uint32_t factor, iterations, warmups, root;
    uint32_t is_checked; /* 0 or 1 */
    uint32_t ranks, rank;
    const char *meet, *local, *algorithm, *plot;
    uint32_t deadline_ms;
    bool is_json, is_verbose, has_kind;
};

/* A line of the table: what is measured. */
struct co_row {
    enum sw_coll_kind kind;
    enum sw_coll_type type;
    enum sw_coll_op op;
    uint32_t root;
    uint64_t count, bytes; /* elements of a call; of the longest buffer of a rank */
};

/* The means, and sums of all ranks, out of place and in place. */
struct co_figures {
    bool is_there; /* false: it cannot be done so */
    double seconds;
    uint64_t wrong; /* elements */
};

struct co_job {
    const struct co_perf *perf;
    struct sw_coll_launch place;
    struct sw_coll *coll;
    uint32_t order[SW_COLL_RANKS_MAX]; /* of contributions in a sum */
    uint8_t *send, *recv;              /* `room` bytes, and a guard */
    size_t room;
    struct co_tile folded, moved; /* what is awaited: of a fold of this type and operator; others */
    enum sw_coll_type folded_type;
    enum sw_coll_op folded_op; /* SW_COLL_OPS: of none yet */
};

enum { CO_GUARD_BYTES = 64 };

struct co_asked {
    enum sw_coll_kind kind;
    uint32_t type, op, root, size; /* ranks */
};

/* The row of about so many bytes: whole elements, as many for each rank, one at least. */
struct co_row co_row_make(const struct co_asked *asked, uint64_t bytes);
/* Bytes on the busiest port of a rank for each of the row's bytes, as nccl-tests has it. */
double co_row_bus_factor(const struct co_row *row, uint32_t size);
const char *co_kind_name(enum sw_coll_kind kind);
bool co_kind_folds(enum sw_coll_kind kind);
bool co_kind_has_root(enum sw_coll_kind kind);

/* Measures a row together with all other ranks, and checks it. OK, or what the library says. */
enum sw_coll_status co_measure(struct co_job *job, const struct co_row *row,
                               struct co_figures figures[2], struct sw_coll_error *error);

/* The whole table, as one rank. Rank 0 prints it. Returns the exit status. */
int co_job_run(const struct co_perf *perf, const struct sw_coll_launch *place);

#endif
