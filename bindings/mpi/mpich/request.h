/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests of non-blocking calls: MPICH's extended generalized requests, which it asks in all calls
 * that test or wait for them. While a rank waits in another call of MPI, or computes, a thread goes
 * on with what is under way.
 */
#ifndef SW_BINDINGS_MPI_MPICH_REQUEST_H
#define SW_BINDINGS_MPI_MPICH_REQUEST_H

#include <mpi.h>
#include <stdbool.h>

struct mpm_group;
struct mpm_later;

/* False: no memory; the call is lost then, and with it the communicator. */
bool mpp_request_start(struct mpm_later *later, MPI_Comm communicator, MPI_Request *request);
/* All of a communicator, which is about to be freed: waits for those that are not over. */
void mpp_requests_complete(struct mpm_group *group, MPI_Comm communicator);
/* Ends the thread. */
void mpp_requests_end(void);

#endif
