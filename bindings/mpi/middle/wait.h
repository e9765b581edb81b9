/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs a call of the library to its end, while MPI goes on with what it has under way. */
#ifndef SW_BINDINGS_MPI_WAIT_H
#define SW_BINDINGS_MPI_WAIT_H

#include "group.h"

bool mpm_wait(struct mpm_group *group, const struct sw_coll_call *call,
              struct sw_coll_error *error);

#endif
