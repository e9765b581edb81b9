/* SPDX-License-Identifier: BSD-2-Clause */
/* An MPI program of which half of the ranks alone make a collective call. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, one = 1, sum = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    if (rank % 2 == 0) {
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, half);
        printf("rank %d: %d\n", rank, sum);
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
