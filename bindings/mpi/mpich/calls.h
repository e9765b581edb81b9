/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * MPICH's collective calls, as MPI has them; NULL for `request`: the call blocks. Handles are ints
 * there (MPICH's ABI); <mpi.h> is left out for names.c, which defines its functions with other
 * types.
 */
#ifndef SW_BINDINGS_MPI_CALLS_H
#define SW_BINDINGS_MPI_CALLS_H

int mpp_all_gather(const void *send, int send_count, int send_type, void *recv, int recv_count,
                   int recv_type, int communicator, int *request);
int mpp_all_gather_v(const void *send, int send_count, int send_type, void *recv,
                     const int *recv_counts, const int *starts, int recv_type, int communicator,
                     int *request);
int mpp_all_reduce(const void *send, void *recv, int count, int type, int op, int communicator,
                   int *request);
int mpp_all_to_all(const void *send, int send_count, int send_type, void *recv, int recv_count,
                   int recv_type, int communicator, int *request);
int mpp_all_to_all_v(const void *send, const int *send_counts, const int *send_starts,
                     int send_type, void *recv, const int *recv_counts, const int *recv_starts,
                     int recv_type, int communicator, int *request);
int mpp_barrier(int communicator, int *request);
int mpp_broadcast(void *buffer, int count, int type, int root, int communicator, int *request);
int mpp_gather(const void *send, int send_count, int send_type, void *recv, int recv_count,
               int recv_type, int root, int communicator, int *request);
int mpp_reduce(const void *send, void *recv, int count, int type, int op, int root,
               int communicator, int *request);
int mpp_reduce_scatter(const void *send, void *recv, const int *counts, int type, int op,
                       int communicator, int *request);
int mpp_reduce_scatter_block(const void *send, void *recv, int count, int type, int op,
                             int communicator, int *request);
int mpp_scatter(const void *send, int send_count, int send_type, void *recv, int recv_count,
                int recv_type, int root, int communicator, int *request);

/* All ranks have ended its operations: closes what is ours, before MPI frees it. */
void mpp_part(int communicator);
/* The same for all, at the end. */
void mpp_part_all(void);
/* One that stays MPI's: counted. */
void mpp_leave_kind(void);

#endif
