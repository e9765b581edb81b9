/* SPDX-License-Identifier: BSD-2-Clause */
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool mpm_lack_memory(struct sw_coll_error *error)
{
    error->status = SW_COLL_NO_MEMORY;
    snprintf(error->text, sizeof(error->text),
             "no memory for a copy of what has gaps, or MPI does not pack its type");
    return false;
}

bool mpm_work_store(const struct mpm_work *work, struct sw_coll_error *error)
{
    if (work->begin && work->begin_bytes)
        memmove(work->begin, work->call.recv, work->begin_bytes);
    return mpm_flat_store(&work->recv) || mpm_lack_memory(error);
}

void mpm_work_free(struct mpm_work *work)
{
    mpm_flat_free(&work->send);
    mpm_flat_free(&work->recv);
    free(work->counts);
    free(work->recv_counts);
    work->counts = work->recv_counts = NULL;
}
