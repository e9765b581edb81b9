/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The time of MPI_Allreduce or MPI_Barrier, for bench/lib/coll_rows.py, which builds it by the
 * mpicc of each MPI:
 *
 *     mpirun -n 2 coll_mpi BYTES TIMES      0 bytes: a barrier
 *
 * Each result is checked once. Rank 0 prints the mean of all ranks as JSON.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* MPICH takes its fast path after some calls of a communicator. */
enum { WARMUPS = 20 };

static void call_once(const float *mine, float *sums, int count)
{
    if (count)
        MPI_Allreduce(mine, sums, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else
        MPI_Barrier(MPI_COMM_WORLD);
}

/* Whole numbers, so that any order gives these. */
static int is_right(const float *sums, int count, int size)
{
    for (int i = 0; i < count; i++) {
        const float right = (float)(size * (i % 1000) + size * (size - 1) / 2);
        if (sums[i] < right || sums[i] > right)
            return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int count = argc == 3 ? atoi(argv[1]) / (int)sizeof(float) : 0;
    const int times = argc == 3 ? atoi(argv[2]) : 1;
    float *mine = calloc((size_t)count + 1, sizeof(*mine));
    float *sums = calloc((size_t)count + 1, sizeof(*sums));
    if (!mine || !sums)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < count; i++)
        mine[i] = (float)(i % 1000 + rank);
    for (int i = 0; i < WARMUPS; i++)
        call_once(mine, sums, count);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int i = 0; i < times; i++)
        call_once(mine, sums, count);
    double own = (MPI_Wtime() - start) / times, all = 0;
    if (!is_right(sums, count, size))
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Reduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (!rank)
        printf("{\"time_s\": %.9g}\n", all / size);
    free(mine);
    free(sums);
    MPI_Finalize();
    return 0;
}
