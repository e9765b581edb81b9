/* SPDX-License-Identifier: BSD-2-Clause */
/* Each call goes to the middle, or to MPI as it came. */
#include "calls.h"

#include <mpi.h>

#include "../middle/later.h"
#include "../middle/settings.h"
#include "communicator.h"
#include "request.h"

/* Whether the call was ours; `result` is what it returns then. NULL for `request`: it blocks. */
static bool calls_run_ours(MPI_Comm communicator, const struct mpm_call *call, MPI_Request *request,
                           int *result)
{
    if (request && !mpp_has(MPP_Xgrequest_start))
        return false;
    struct sw_coll_error error = {0};
    struct mpm_group *group = mpp_group(communicator);
    struct mpm_later *later = NULL;
    *result = MPI_SUCCESS;
    enum mpm_outcome outcome =
        request ? mpm_later_begin(group, call, &error, &later) : mpm_run(group, call, &error);
    if (outcome == MPM_NOT_OURS)
        return false;
    if (later && !mpp_request_start(later, communicator, request)) {
        outcome = MPM_FAILED;
        mpm_lack_memory(&error);
    }
    if (outcome == MPM_FAILED)
        *result = mpp_fail(communicator, &error);
    return true;
}

int mpp_all_reduce(const void *send, void *recv, int count, int type, int op, int communicator,
                   int *request)
{
    const struct mpm_call call = {
        .kind = SW_COLL_ALL_REDUCE,
        .send = {.base = send},
        .recv = {.base = recv, .count = count, .type = &type},
        .op = &op,
    };
    int result;
    if (calls_run_ours(communicator, &call, request, &result))
        return result;
    if (request)
        return MPP_REAL(Iallreduce)(send, recv, count, type, op, communicator, request);
    return MPP_REAL(Allreduce)(send, recv, count, type, op, communicator);
}

int mpp_reduce(const void *send, void *recv, int count, int type, int op, int root,
               int communicator, int *request)
{
    const struct mpm_call call = {
        .kind = SW_COLL_REDUCE,
        .root = root,
        .send = {.base = send},
        .recv = {.base = recv, .count = count, .type = &type},
        .op = &op,
    };
    int result;
    if (calls_run_ours(communicator, &call, request, &result))
        return result;
    if (request)
        return MPP_REAL(Ireduce)(send, recv, count, type, op, root, communicator, request);
    return MPP_REAL(Reduce)(send, recv, count, type, op, root, communicator);
}

int mpp_reduce_scatter(const void *send, void *recv, const int *counts, int type, int op,
                       int communicator, int *request)
{
    const struct mpm_call call = {
        .kind = SW_COLL_REDUCE_SCATTER,
        .has_counts = true,
        .send = {.base = send},
        .recv = {.base = recv, .counts = counts, .type = &type},
        .op = &op,
    };
    int result;
    if (calls_run_ours(communicator, &call, request, &result))
        return result;
    if (request)
        return MPP_REAL(Ireduce_scatter)(send, recv, counts, type, op, communicator, request);
    return MPP_REAL(Reduce_scatter)(send, recv, counts, type, op, communicator);
}

int mpp_reduce_scatter_block(const void *send, void *recv, int count, int type, int op,
                             int communicator, int *request)
{
    const struct mpm_call call = {
        .kind = SW_COLL_REDUCE_SCATTER,
        .send = {.base = send},
        .recv = {.base = recv, .count = count, .type = &type},
        .op = &op,
    };
    int result;
    if (calls_run_ours(communicator, &call, request, &result))
        return result;
    if (request)
        return MPP_REAL(Ireduce_scatter_block)(send, recv, count, type, op, communicator, request);
    return MPP_REAL(Reduce_scatter_block)(send, recv, count, type, op, communicator);
}

int mpp_broadcast(void *buffer, int count, int type, int root, int communicator, int *request)
{
    const struct mpm_call call = {
        .kind = SW_COLL_BROADCAST,
        .root = root,
        .recv = {.base = buffer, .count = count, .type = &type},
    };
    int result;
    if (calls_run_ours(communicator, &call, request, &result))
        return result;
    if (request)
        return MPP_REAL(Ibcast)(buffer, count, type, root, communicator, request);
    return MPP_REAL(Bcast)(buffer, count, type, root, communicator);
}

int mpp_all_gather(const void *send, int send_count, int send_type, void *recv, int recv_count,
                   int recv_type, int communicator, int *request)
{
    const struct mpm_call call = {
        .kind = SW_COLL_ALL_GATHER,
        .send = {.base = send, .count = send_count, .type = &send_type},
        .recv = {.base = recv, .count = recv_count, .type = &recv_type},
    };
    int result;
    if (calls_run_ours(communicator, &call, request, &result))
        return result;
    if (request)
        return MPP_REAL(Iallgather)(send, send_count, send_type, recv, recv_count, recv_type,
                                    communicator, request);
    return MPP_REAL(Allgather)(send, send_count, send_type, recv, recv_count, recv_type,
                               communicator);
}

int mpp_all_gather_v(const void *send, int send_count, int send_type, void *recv,
                     const int *recv_counts, const int *starts, int recv_type, int communicator,
                     int *request)
{
    const struct mpm_call call = {
        .kind = SW_COLL_ALL_GATHER,
        .has_counts = true,
        .send = {.base = send, .count = send_count, .type = &send_type},
        .recv = {.base = recv, .counts = recv_counts, .starts = starts, .type = &recv_type},
    };
    int result;
    if (calls_run_ours(communicator, &call, request, &result))
        return result;
    if (request)
        return MPP_REAL(Iallgatherv)(send, send_count, send_type, recv, recv_counts, starts,
                                     recv_type, communicator, request);
    return MPP_REAL(Allgatherv)(send, send_count, send_type, recv, recv_counts, starts, recv_type,
                                communicator);
}

int mpp_all_to_all(const void *send, int send_count, int send_type, void *recv, int recv_count,
                   int recv_type, int communicator, int *request)
{
    const struct mpm_call call = {
        .kind = SW_COLL_ALL_TO_ALL,
        .send = {.base = send, .count = send_count, .type = &send_type},
        .recv = {.base = recv, .count = recv_count, .type = &recv_type},
    };
    int result;
    if (calls_run_ours(communicator, &call, request, &result))
        return result;
    if (request)
        return MPP_REAL(Ialltoall)(send, send_count, send_type, recv, recv_count, recv_type,
                                   communicator, request);
    return MPP_REAL(Alltoall)(send, send_count, send_type, recv, recv_count, recv_type,
                              communicator);
}

int mpp_all_to_all_v(const void *send, const int *send_counts, const int *send_starts,
                     int send_type, void *recv, const int *recv_counts, const int *recv_starts,
                     int recv_type, int communicator, int *request)
{
    const struct mpm_call call = {
        .kind = SW_COLL_ALL_TO_ALL,
        .has_counts = true,
        .send = {.base = send, .counts = send_counts, .starts = send_starts, .type = &send_type},
        .recv = {.base = recv, .counts = recv_counts, .starts = recv_starts, .type = &recv_type},
    };
    int result;
    if (calls_run_ours(communicator, &call, request, &result))
        return result;
    if (request)
        return MPP_REAL(Ialltoallv)(send, send_counts, send_starts, send_type, recv, recv_counts,
                                    recv_starts, recv_type, communicator, request);
    return MPP_REAL(Alltoallv)(send, send_counts, send_starts, send_type, recv, recv_counts,
                               recv_starts, recv_type, communicator);
}

int mpp_gather(const void *send, int send_count, int send_type, void *recv, int recv_count,
               int recv_type, int root, int communicator, int *request)
{
    const struct mpm_call call = {
        .kind = SW_COLL_GATHER,
        .root = root,
        .send = {.base = send, .count = send_count, .type = &send_type},
        .recv = {.base = recv, .count = recv_count, .type = &recv_type},
    };
    int result;
    if (calls_run_ours(communicator, &call, request, &result))
        return result;
    if (request)
        return MPP_REAL(Igather)(send, send_count, send_type, recv, recv_count, recv_type, root,
                                 communicator, request);
    return MPP_REAL(Gather)(send, send_count, send_type, recv, recv_count, recv_type, root,
                            communicator);
}

int mpp_scatter(const void *send, int send_count, int send_type, void *recv, int recv_count,
                int recv_type, int root, int communicator, int *request)
{
    const struct mpm_call call = {
        .kind = SW_COLL_SCATTER,
        .root = root,
        .send = {.base = send, .count = send_count, .type = &send_type},
        .recv = {.base = recv, .count = recv_count, .type = &recv_type},
    };
    int result;
    if (calls_run_ours(communicator, &call, request, &result))
        return result;
    if (request)
        return MPP_REAL(Iscatter)(send, send_count, send_type, recv, recv_count, recv_type, root,
                                  communicator, request);
    return MPP_REAL(Scatter)(send, send_count, send_type, recv, recv_count, recv_type, root,
                             communicator);
}

int mpp_barrier(int communicator, int *request)
{
    const struct mpm_call call = {.kind = SW_COLL_BARRIER};
    int result;
    if (calls_run_ours(communicator, &call, request, &result))
        return result;
    if (request)
        return MPP_REAL(Ibarrier)(communicator, request);
    return MPP_REAL(Barrier)(communicator);
}

void mpp_leave_kind(void)
{
    mpm_count_left(MPM_LEFT_KIND);
}
