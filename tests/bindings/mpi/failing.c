/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An MPI program whose ranks make unlike calls: each names itself as the root. With an error
 * handler that returns, each rank is told; with MPI's own, the program ends.
 *
 * usage: failing [fatal]
 */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, value = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 2)
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int status = MPI_Bcast(&value, 1, MPI_INT, rank, MPI_COMM_WORLD);
    int class = MPI_SUCCESS;
    if (status != MPI_SUCCESS)
        MPI_Error_class(status, &class);
    printf("rank %d: %s\n", rank, class == MPI_ERR_OTHER ? "told" : "not told");
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
