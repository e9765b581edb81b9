/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An MPI program whose ranks make unlike calls: each names itself as the root. With an error
 * handler that returns, each rank is told; with MPI's own, the program ends.
 *
 * With "counts" each rank is told by MPICH that a count is negative.
 *
 * usage: failing fatal|returns|later|counts, where later's call does not block
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

static int call_negative(void)
{
    enum { RANKS = 3 };
    static int from[2 * RANKS], to[2 * RANKS];
    static const int counts[RANKS] = {-1, 1, 1}, starts[RANKS] = {0, 2, 4};
    MPI_Barrier(MPI_COMM_WORLD);
    int status[] = {
        MPI_Alltoallv(from, counts, starts, MPI_INT, to, counts, starts, MPI_INT, MPI_COMM_WORLD),
        MPI_Allgatherv(from, 1, MPI_INT, to, counts, starts, MPI_INT, MPI_COMM_WORLD),
        MPI_Reduce_scatter(from, to, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD)};
    for (int i = 0; i < 3; i++) {
        int class = MPI_SUCCESS;
        MPI_Error_class(status[i], &class);
        if (class == MPI_SUCCESS || class == MPI_ERR_OTHER)
            return MPI_SUCCESS;
    }
    return MPI_ERR_OTHER;
}

static int call_in_mode(const char *mode, int *value, int rank)
{
    if (!strcmp(mode, "counts"))
        return call_negative();
    return strcmp(mode, "later") ? MPI_Bcast(value, 1, MPI_INT, rank, MPI_COMM_WORLD)
                                 : call_later(value, rank);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, value = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "fatal"))
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int status = call_in_mode(mode, &value, rank);
    int class = MPI_SUCCESS;
    if (status != MPI_SUCCESS)
        MPI_Error_class(status, &class);
    printf("rank %d: %s\n", rank, class == MPI_ERR_OTHER ? "told" : "not told");
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
