/* SPDX-License-Identifier: BSD-2-Clause */
/* As names.c, those of the calls that do not block. */
#include "calls.h"
#include "real.h"
#include "words.h"

EXPORTED int MPI_Iallreduce(word send, word recv, word count, word type, word op, word communicator,
                            word request);
EXPORTED int MPI_Ireduce(word send, word recv, word count, word type, word op, word root,
                         word communicator, word request);
EXPORTED int MPI_Ireduce_scatter(word send, word recv, word counts, word type, word op,
                                 word communicator, word request);
EXPORTED int MPI_Ireduce_scatter_block(word send, word recv, word count, word type, word op,
                                       word communicator, word request);
EXPORTED int MPI_Ibcast(word buffer, word count, word type, word root, word communicator,
                        word request);
EXPORTED int MPI_Iallgather(word send, word send_count, word send_type, word recv, word recv_count,
                            word recv_type, word communicator, word request);
EXPORTED int MPI_Iallgatherv(word send, word send_count, word send_type, word recv,
                             word recv_counts, word starts, word recv_type, word communicator,
                             word request);
EXPORTED int MPI_Ialltoall(word send, word send_count, word send_type, word recv, word recv_count,
                           word recv_type, word communicator, word request);
EXPORTED int MPI_Ialltoallv(word send, word send_counts, word send_starts, word send_type,
                            word recv, word recv_counts, word recv_starts, word recv_type,
                            word communicator, word request);
EXPORTED int MPI_Igather(word send, word send_count, word send_type, word recv, word recv_count,
                         word recv_type, word root, word communicator, word request);
EXPORTED int MPI_Iscatter(word send, word send_count, word send_type, word recv, word recv_count,
                          word recv_type, word root, word communicator, word request);
EXPORTED int MPI_Ibarrier(word communicator, word request);

int MPI_Iallreduce(word send, word recv, word count, word type, word op, word communicator,
                   word request)
{
    if (!mpp_is_mpich())
        return ((call_7 *)mpp_find(MPP_Iallreduce))(send, recv, count, type, op, communicator,
                                                    request);
    return mpp_all_reduce((const void *)send, (void *)recv, (int)count, (int)type, (int)op,
                          (int)communicator, (int *)request);
}

int MPI_Ireduce(word send, word recv, word count, word type, word op, word root, word communicator,
                word request)
{
    if (!mpp_is_mpich())
        return ((call_8 *)mpp_find(MPP_Ireduce))(send, recv, count, type, op, root, communicator,
                                                 request);
    return mpp_reduce((const void *)send, (void *)recv, (int)count, (int)type, (int)op, (int)root,
                      (int)communicator, (int *)request);
}

int MPI_Ireduce_scatter(word send, word recv, word counts, word type, word op, word communicator,
                        word request)
{
    if (!mpp_is_mpich())
        return ((call_7 *)mpp_find(MPP_Ireduce_scatter))(send, recv, counts, type, op, communicator,
                                                         request);
    return mpp_reduce_scatter((const void *)send, (void *)recv, (const int *)counts, (int)type,
                              (int)op, (int)communicator, (int *)request);
}

int MPI_Ireduce_scatter_block(word send, word recv, word count, word type, word op,
                              word communicator, word request)
{
    if (!mpp_is_mpich())
        return ((call_7 *)mpp_find(MPP_Ireduce_scatter_block))(send, recv, count, type, op,
                                                               communicator, request);
    return mpp_reduce_scatter_block((const void *)send, (void *)recv, (int)count, (int)type,
                                    (int)op, (int)communicator, (int *)request);
}

int MPI_Ibcast(word buffer, word count, word type, word root, word communicator, word request)
{
    if (!mpp_is_mpich())
        return ((call_6 *)mpp_find(MPP_Ibcast))(buffer, count, type, root, communicator, request);
    return mpp_broadcast((void *)buffer, (int)count, (int)type, (int)root, (int)communicator,
                         (int *)request);
}

int MPI_Iallgather(word send, word send_count, word send_type, word recv, word recv_count,
                   word recv_type, word communicator, word request)
{
    if (!mpp_is_mpich())
        return ((call_8 *)mpp_find(MPP_Iallgather))(send, send_count, send_type, recv, recv_count,
                                                    recv_type, communicator, request);
    return mpp_all_gather((const void *)send, (int)send_count, (int)send_type, (void *)recv,
                          (int)recv_count, (int)recv_type, (int)communicator, (int *)request);
}

int MPI_Iallgatherv(word send, word send_count, word send_type, word recv, word recv_counts,
                    word starts, word recv_type, word communicator, word request)
{
    if (!mpp_is_mpich())
        return ((call_9 *)mpp_find(MPP_Iallgatherv))(send, send_count, send_type, recv, recv_counts,
                                                     starts, recv_type, communicator, request);
    return mpp_all_gather_v((const void *)send, (int)send_count, (int)send_type, (void *)recv,
                            (const int *)recv_counts, (const int *)starts, (int)recv_type,
                            (int)communicator, (int *)request);
}

int MPI_Ialltoall(word send, word send_count, word send_type, word recv, word recv_count,
                  word recv_type, word communicator, word request)
{
    if (!mpp_is_mpich())
        return ((call_8 *)mpp_find(MPP_Ialltoall))(send, send_count, send_type, recv, recv_count,
                                                   recv_type, communicator, request);
    return mpp_all_to_all((const void *)send, (int)send_count, (int)send_type, (void *)recv,
                          (int)recv_count, (int)recv_type, (int)communicator, (int *)request);
}

int MPI_Ialltoallv(word send, word send_counts, word send_starts, word send_type, word recv,
                   word recv_counts, word recv_starts, word recv_type, word communicator,
                   word request)
{
    if (!mpp_is_mpich())
        return ((call_10 *)mpp_find(MPP_Ialltoallv))(send, send_counts, send_starts, send_type,
                                                     recv, recv_counts, recv_starts, recv_type,
                                                     communicator, request);
    return mpp_all_to_all_v((const void *)send, (const int *)send_counts, (const int *)send_starts,
                            (int)send_type, (void *)recv, (const int *)recv_counts,
                            (const int *)recv_starts, (int)recv_type, (int)communicator,
                            (int *)request);
}

int MPI_Igather(word send, word send_count, word send_type, word recv, word recv_count,
                word recv_type, word root, word communicator, word request)
{
    if (!mpp_is_mpich())
        return ((call_9 *)mpp_find(MPP_Igather))(send, send_count, send_type, recv, recv_count,
                                                 recv_type, root, communicator, request);
    return mpp_gather((const void *)send, (int)send_count, (int)send_type, (void *)recv,
                      (int)recv_count, (int)recv_type, (int)root, (int)communicator,
                      (int *)request);
}

int MPI_Iscatter(word send, word send_count, word send_type, word recv, word recv_count,
                 word recv_type, word root, word communicator, word request)
{
    if (!mpp_is_mpich())
        return ((call_9 *)mpp_find(MPP_Iscatter))(send, send_count, send_type, recv, recv_count,
                                                  recv_type, root, communicator, request);
    return mpp_scatter((const void *)send, (int)send_count, (int)send_type, (void *)recv,
                       (int)recv_count, (int)recv_type, (int)root, (int)communicator,
                       (int *)request);
}

int MPI_Ibarrier(word communicator, word request)
{
    if (!mpp_is_mpich())
        return ((call_2 *)mpp_find(MPP_Ibarrier))(communicator, request);
    return mpp_barrier((int)communicator, (int *)request);
}
