/* SPDX-License-Identifier: BSD-2-Clause */
/* Sums of types that the library has. */
#ifndef SW_BINDINGS_MPI_SUM_H
#define SW_BINDINGS_MPI_SUM_H

#include "work.h"

/* The call of the work is as MPI has it, but for this. REDUCE_SCATTER: `counts` are those of MPI,
 * or NULL, where each rank has the call's count. False, with the error: no memory. */
bool mpm_sum_prepare(struct mpm_work *work, const int *counts, struct sw_coll_error *error);

#endif
