/* SPDX-License-Identifier: BSD-2-Clause */
/* MPICH's types and operators, for the middle (binding.h). */
#ifndef SW_BINDINGS_MPI_MPICH_TYPES_H
#define SW_BINDINGS_MPI_MPICH_TYPES_H

#include "../middle/binding.h"

bool mpp_find_type(const void *handle, enum sw_coll_type *found);
bool mpp_find_op(const void *handle, enum sw_coll_op *found);
bool mpp_describe(const void *handle, struct mpm_description *description);
const void *mpp_keep_type(const void *handle);
void mpp_drop_type(const void *kept);

#endif
