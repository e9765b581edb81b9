/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sw_coll communicator of an MPI communicator. It opens at the first call that could be ours,
 * on all ranks or on none: where one could not, all leave the communicator to MPI for good.
 */
#ifndef SW_BINDINGS_MPI_GROUP_H
#define SW_BINDINGS_MPI_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "binding.h"
#include "sidewire/coll.h"

enum mpm_state {
    MPM_NEW,
    MPM_OPEN,  /* its calls are ours, after a failure too */
    MPM_MPI,   /* not all could open it, or it is closed: MPI's for good */
    MPM_UNFIT, /* MPI's from the beginning: of one rank, or between groups */
};

struct mpm_group {
    const struct mpm_binding *binding;
    void *communicator; /* for `exchange` */
    uint32_t rank, size;
    enum mpm_state state;
    struct sw_coll *coll;
    bool must_yield;      /* ranks of this host share processors */
    uint32_t later_count; /* non-blocking calls that are not over (later.c) */
};

/* Opens it if it is new. All ranks get the same answer. */
bool mpm_group_is_ours(struct mpm_group *group);
/* Leaves it to MPI. */
void mpm_group_close(struct mpm_group *group);

#endif
