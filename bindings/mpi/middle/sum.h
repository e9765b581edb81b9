/* SPDX-License-Identifier: BSD-2-Clause */
/* Sums of types that the library has. */
#ifndef SW_BINDINGS_MPI_SUM_H
#define SW_BINDINGS_MPI_SUM_H

#include "group.h"

struct mpm_sum {
    enum sw_coll_kind kind; /* ALL_REDUCE, REDUCE or REDUCE_SCATTER */
    enum sw_coll_type type;
    enum sw_coll_op op;
    uint32_t root;
    const void *send;
    void *recv; /* MPI_IN_PLACE: the same as `send` */
    uint64_t count;
    const int *counts; /* of REDUCE_SCATTER; NULL: `count` each */
};

bool mpm_sum_run(struct mpm_group *group, const struct mpm_sum *sum, struct sw_coll_error *error);

#endif
