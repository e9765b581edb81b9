/* SPDX-License-Identifier: BSD-2-Clause */
/* Data that is moved, of whatever type, as bytes. */
#ifndef SW_BINDINGS_MPI_MOVE_H
#define SW_BINDINGS_MPI_MOVE_H

#include "work.h"

/* Fills the work from its kind and root, and from the buffers `from` and `to`; one that does not
 * matter on this rank has no blocks. BROADCAST: `to` alone. In place: MPI_IN_PLACE stands for the
 * one that has no blocks. False, with the error: no memory. */
bool mpm_move_prepare(struct mpm_work *work, bool is_in_place, struct sw_coll_error *error);

#endif
