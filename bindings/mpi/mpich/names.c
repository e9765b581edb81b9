/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The names of MPI that a program calls. This library is preloaded into programs of other MPIs,
 * too, whose handles are pointers: so parameters are whole words here, which are passed on as they
 * came, and become ints only for MPICH. Fortran's names of MPICH call these.
 */
#include "calls.h"
#include "real.h"
#include "words.h"

/* No <mpi.h> here: it declares these with MPICH's types. */
EXPORTED int MPI_Allgather(word send, word send_count, word send_type, word recv, word recv_count,
                           word recv_type, word communicator);
EXPORTED int MPI_Allgatherv(word send, word send_count, word send_type, word recv, word recv_counts,
                            word starts, word recv_type, word communicator);
EXPORTED int MPI_Allreduce(word send, word recv, word count, word type, word op, word communicator);
EXPORTED int MPI_Alltoall(word send, word send_count, word send_type, word recv, word recv_count,
                          word recv_type, word communicator);
EXPORTED int MPI_Alltoallv(word send, word send_counts, word send_starts, word send_type, word recv,
                           word recv_counts, word recv_starts, word recv_type, word communicator);
EXPORTED int MPI_Barrier(word communicator);
EXPORTED int MPI_Bcast(word buffer, word count, word type, word root, word communicator);
EXPORTED int MPI_Comm_disconnect(word communicator);
EXPORTED int MPI_Comm_free(word communicator);
EXPORTED int MPI_Finalize(void);
EXPORTED int MPI_Gather(word send, word send_count, word send_type, word recv, word recv_count,
                        word recv_type, word root, word communicator);
EXPORTED int MPI_Gatherv(word send, word send_count, word send_type, word recv, word recv_counts,
                         word starts, word recv_type, word root, word communicator);
EXPORTED int MPI_Reduce(word send, word recv, word count, word type, word op, word root,
                        word communicator);
EXPORTED int MPI_Reduce_scatter(word send, word recv, word counts, word type, word op,
                                word communicator);
EXPORTED int MPI_Reduce_scatter_block(word send, word recv, word count, word type, word op,
                                      word communicator);
EXPORTED int MPI_Scatter(word send, word send_count, word send_type, word recv, word recv_count,
                         word recv_type, word root, word communicator);
EXPORTED int MPI_Scatterv(word send, word send_counts, word starts, word send_type, word recv,
                          word recv_count, word recv_type, word root, word communicator);

int MPI_Allgather(word send, word send_count, word send_type, word recv, word recv_count,
                  word recv_type, word communicator)
{
    if (!mpp_is_mpich())
        return ((call_7 *)mpp_find(MPP_Allgather))(send, send_count, send_type, recv, recv_count,
                                                   recv_type, communicator);
    return mpp_all_gather((const void *)send, (int)send_count, (int)send_type, (void *)recv,
                          (int)recv_count, (int)recv_type, (int)communicator, NULL);
}

int MPI_Allgatherv(word send, word send_count, word send_type, word recv, word recv_counts,
                   word starts, word recv_type, word communicator)
{
    if (!mpp_is_mpich())
        return ((call_8 *)mpp_find(MPP_Allgatherv))(send, send_count, send_type, recv, recv_counts,
                                                    starts, recv_type, communicator);
    return mpp_all_gather_v((const void *)send, (int)send_count, (int)send_type, (void *)recv,
                            (const int *)recv_counts, (const int *)starts, (int)recv_type,
                            (int)communicator, NULL);
}

int MPI_Allreduce(word send, word recv, word count, word type, word op, word communicator)
{
    if (!mpp_is_mpich())
        return ((call_6 *)mpp_find(MPP_Allreduce))(send, recv, count, type, op, communicator);
    return mpp_all_reduce((const void *)send, (void *)recv, (int)count, (int)type, (int)op,
                          (int)communicator, NULL);
}

int MPI_Alltoall(word send, word send_count, word send_type, word recv, word recv_count,
                 word recv_type, word communicator)
{
    if (!mpp_is_mpich())
        return ((call_7 *)mpp_find(MPP_Alltoall))(send, send_count, send_type, recv, recv_count,
                                                  recv_type, communicator);
    return mpp_all_to_all((const void *)send, (int)send_count, (int)send_type, (void *)recv,
                          (int)recv_count, (int)recv_type, (int)communicator, NULL);
}

int MPI_Alltoallv(word send, word send_counts, word send_starts, word send_type, word recv,
                  word recv_counts, word recv_starts, word recv_type, word communicator)
{
    if (!mpp_is_mpich())
        return ((call_9 *)mpp_find(MPP_Alltoallv))(send, send_counts, send_starts, send_type, recv,
                                                   recv_counts, recv_starts, recv_type,
                                                   communicator);
    return mpp_all_to_all_v((const void *)send, (const int *)send_counts, (const int *)send_starts,
                            (int)send_type, (void *)recv, (const int *)recv_counts,
                            (const int *)recv_starts, (int)recv_type, (int)communicator, NULL);
}

int MPI_Barrier(word communicator)
{
    if (!mpp_is_mpich())
        return ((call_1 *)mpp_find(MPP_Barrier))(communicator);
    return mpp_barrier((int)communicator, NULL);
}

int MPI_Bcast(word buffer, word count, word type, word root, word communicator)
{
    if (!mpp_is_mpich())
        return ((call_5 *)mpp_find(MPP_Bcast))(buffer, count, type, root, communicator);
    return mpp_broadcast((void *)buffer, (int)count, (int)type, (int)root, (int)communicator, NULL);
}

int MPI_Comm_disconnect(word communicator)
{
    if (mpp_is_mpich() && communicator)
        mpp_part(*(const int *)communicator);
    return ((call_1 *)mpp_find(MPP_Comm_disconnect))(communicator);
}

int MPI_Comm_free(word communicator)
{
    if (mpp_is_mpich() && communicator)
        mpp_part(*(const int *)communicator);
    return ((call_1 *)mpp_find(MPP_Comm_free))(communicator);
}

int MPI_Finalize(void)
{
    if (mpp_is_mpich())
        mpp_part_all();
    return ((int (*)(void))mpp_find(MPP_Finalize))();
}

int MPI_Gather(word send, word send_count, word send_type, word recv, word recv_count,
               word recv_type, word root, word communicator)
{
    if (!mpp_is_mpich())
        return ((call_8 *)mpp_find(MPP_Gather))(send, send_count, send_type, recv, recv_count,
                                                recv_type, root, communicator);
    return mpp_gather((const void *)send, (int)send_count, (int)send_type, (void *)recv,
                      (int)recv_count, (int)recv_type, (int)root, (int)communicator, NULL);
}

int MPI_Gatherv(word send, word send_count, word send_type, word recv, word recv_counts,
                word starts, word recv_type, word root, word communicator)
{
    if (mpp_is_mpich())
        mpp_leave_kind();
    return ((call_9 *)mpp_find(MPP_Gatherv))(send, send_count, send_type, recv, recv_counts, starts,
                                             recv_type, root, communicator);
}

int MPI_Reduce(word send, word recv, word count, word type, word op, word root, word communicator)
{
    if (!mpp_is_mpich())
        return ((call_7 *)mpp_find(MPP_Reduce))(send, recv, count, type, op, root, communicator);
    return mpp_reduce((const void *)send, (void *)recv, (int)count, (int)type, (int)op, (int)root,
                      (int)communicator, NULL);
}

int MPI_Reduce_scatter(word send, word recv, word counts, word type, word op, word communicator)
{
    if (!mpp_is_mpich())
        return ((call_6 *)mpp_find(MPP_Reduce_scatter))(send, recv, counts, type, op, communicator);
    return mpp_reduce_scatter((const void *)send, (void *)recv, (const int *)counts, (int)type,
                              (int)op, (int)communicator, NULL);
}

int MPI_Reduce_scatter_block(word send, word recv, word count, word type, word op,
                             word communicator)
{
    if (!mpp_is_mpich())
        return ((call_6 *)mpp_find(MPP_Reduce_scatter_block))(send, recv, count, type, op,
                                                              communicator);
    return mpp_reduce_scatter_block((const void *)send, (void *)recv, (int)count, (int)type,
                                    (int)op, (int)communicator, NULL);
}

int MPI_Scatter(word send, word send_count, word send_type, word recv, word recv_count,
                word recv_type, word root, word communicator)
{
    if (!mpp_is_mpich())
        return ((call_8 *)mpp_find(MPP_Scatter))(send, send_count, send_type, recv, recv_count,
                                                 recv_type, root, communicator);
    return mpp_scatter((const void *)send, (int)send_count, (int)send_type, (void *)recv,
                       (int)recv_count, (int)recv_type, (int)root, (int)communicator, NULL);
}

int MPI_Scatterv(word send, word send_counts, word starts, word send_type, word recv,
                 word recv_count, word recv_type, word root, word communicator)
{
    if (mpp_is_mpich())
        mpp_leave_kind();
    return ((call_9 *)mpp_find(MPP_Scatterv))(send, send_counts, starts, send_type, recv,
                                              recv_count, recv_type, root, communicator);
}
