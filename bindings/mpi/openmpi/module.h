/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The `coll` component of Open MPI 4.1. Each communicator has a module, whose functions go before
 * those of other components; these are kept, for calls that are not ours.
 */
#ifndef SW_BINDINGS_MPI_MODULE_H
#define SW_BINDINGS_MPI_MODULE_H

#include <ompi_config.h>

#include <ompi/communicator/communicator.h>
#include <ompi/mca/coll/coll.h>

#include "../middle/group.h"

struct mpo_module {
    mca_coll_base_module_t super;
    struct mpm_group group;
    struct ompi_communicator_t *communicator;
    mca_coll_base_comm_coll_t others; /* what was there before */
    bool has_others;
};
typedef struct mpo_module mpo_module_t;
OBJ_CLASS_DECLARATION(mpo_module_t);

/* The module of a new communicator; NULL: it has none. */
mca_coll_base_module_t *mpo_module_make(struct ompi_communicator_t *communicator, int *priority);

/* At the end. */
void mpo_tell_counts(void);

#endif
