/* SPDX-License-Identifier: BSD-2-Clause */
/* A call of MPI as one of the library: between its first look at the buffers and its result. */
#ifndef SW_BINDINGS_MPI_WORK_H
#define SW_BINDINGS_MPI_WORK_H

#include "buffer.h"
#include "group.h"

struct mpm_work {
    struct mpm_group *group;
    struct sw_coll_call call;
    /* Data that is moved. `to` says where the result goes, for copies of it. */
    struct mpm_buffer from, to;
    struct mpm_flat send, recv;
    uint64_t *counts, *recv_counts; /* what those of `call` point to */
    /* REDUCE_SCATTER in place: the result goes from `call.recv` to here. NULL: it is there. */
    void *begin;
    size_t begin_bytes;
};

/* The operation has ended well: results go to their places. */
bool mpm_work_store(const struct mpm_work *work, struct sw_coll_error *error);
void mpm_work_free(struct mpm_work *work);
/* False, with the error set. */
bool mpm_lack_memory(struct sw_coll_error *error);

#endif
