/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An MPI program whose ranks make unlike calls: each names itself as the root. With an error
 * handler that returns, each rank is told; with MPI's own, the program ends.
 *
 * usage: failing fatal|returns|later, where the last one's call does not block
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int call_later(int *value, int root)
{
    MPI_Request request;
    MPI_Barrier(MPI_COMM_WORLD);
    int status = MPI_Ibcast(value, 1, MPI_INT, root, MPI_COMM_WORLD, &request);
    return status == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : status;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, value = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "fatal"))
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int status = strcmp(mode, "later") ? MPI_Bcast(&value, 1, MPI_INT, rank, MPI_COMM_WORLD)
                                       : call_later(&value, rank);
    int class = MPI_SUCCESS;
    if (status != MPI_SUCCESS)
        MPI_Error_class(status, &class);
    printf("rank %d: %s\n", rank, class == MPI_ERR_OTHER ? "told" : "not told");
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
