/* SPDX-License-Identifier: BSD-2-Clause */
/* Data that is moved, of whatever type, as bytes. */
#ifndef SW_BINDINGS_MPI_MOVE_H
#define SW_BINDINGS_MPI_MOVE_H

#include "buffer.h"
#include "group.h"

/* A buffer that does not matter on this rank has no blocks. */
struct mpm_move {
    enum sw_coll_kind kind;
    uint32_t root;
    struct mpm_buffer send, recv; /* BROADCAST: `recv` alone */
    bool is_in_place;             /* MPI_IN_PLACE stands for the one that has no blocks */
};

bool mpm_move_run(struct mpm_group *group, const struct mpm_move *move,
                  struct sw_coll_error *error);
/* False, with the error set. */
bool mpm_lack_memory(struct sw_coll_error *error);

#endif
