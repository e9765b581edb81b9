/* SPDX-License-Identifier: BSD-2-Clause */
/* What the middle asks of Open MPI (binding.h). */
#ifndef SW_BINDINGS_MPI_OPENMPI_TYPES_H
#define SW_BINDINGS_MPI_OPENMPI_TYPES_H

#include "../middle/binding.h"

bool mpo_find_type(const void *handle, enum sw_coll_type *found);
bool mpo_find_op(const void *handle, enum sw_coll_op *found);
bool mpo_describe(const void *handle, struct mpm_description *description);
bool mpo_pack(const void *from, int count, const void *handle, void *to, int bytes);
bool mpo_unpack(const void *from, int bytes, void *to, int count, const void *handle);
const void *mpo_keep_type(const void *handle);
void mpo_drop_type(const void *kept);

#endif
