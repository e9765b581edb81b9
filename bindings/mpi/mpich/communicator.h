/* SPDX-License-Identifier: BSD-2-Clause */
/* What an MPI communicator of MPICH has of ours: an attribute. */
#ifndef SW_BINDINGS_MPI_COMMUNICATOR_H
#define SW_BINDINGS_MPI_COMMUNICATOR_H

#include <mpi.h>

#include "../middle/group.h"
#include "real.h"

/* PMPI_<name>, as <mpi.h> declares it. */
#define MPP_REAL(name) ((__typeof__(PMPI_##name) *)mpp_find(MPP_##name))

/* NULL: it has none, and can have none. */
struct mpm_group *mpp_group(MPI_Comm communicator);
/* A failure goes the way that the communicator's error handler says. */
int mpp_fail(MPI_Comm communicator, const struct sw_coll_error *error);

#endif
