/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Collective calls. What chooses whether a call is ours has to be alike on all ranks by MPI's
 * rules: the communicator, and type and operator of a sum. The types of data that is only moved may
 * differ between ranks, as only their signatures have to agree: so these calls are ours whatever
 * the types, and count in bytes.
 */
#ifndef SW_BINDINGS_MPI_CALL_H
#define SW_BINDINGS_MPI_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "sidewire/coll.h"
#include "work.h"

/* A buffer among the arguments, as MPI has them. */
struct mpm_side {
    const void *base; /* or MPI_IN_PLACE */
    int count;
    const int *counts, *starts; /* of calls with a v, and of MPI_Reduce_scatter */
    const void *type;           /* a pointer to its handle */
};

struct mpm_call {
    enum sw_coll_kind kind;
    int root;
    bool has_counts;            /* of each rank */
    struct mpm_side send, recv; /* BROADCAST: `recv` alone; sums: the count and type of `recv` */
    const void *op;
};

enum mpm_outcome {
    MPM_NOT_OURS, /* it is MPI's, on all ranks; or its arguments are wrong, which MPI says */
    MPM_DONE,
    MPM_FAILED, /* with `error` set */
};

/* NULL for `group`: the communicator has none. The work has to be zeros. MPM_DONE: it is ours, and
 * ready to be posted. */
enum mpm_outcome mpm_prepare(struct mpm_work *work, struct mpm_group *group,
                             const struct mpm_call *call, struct sw_coll_error *error);
/* Carries it out. */
enum mpm_outcome mpm_run(struct mpm_group *group, const struct mpm_call *call,
                         struct sw_coll_error *error);

#endif
