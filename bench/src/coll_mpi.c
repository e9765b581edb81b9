/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The time of MPI_Allreduce, MPI_Barrier or MPI_Sendrecv, for bench/lib/coll_rows.py, which builds
 * it by the mpicc of each MPI:
 *
 *     mpirun -n 2 coll_mpi BYTES TIMES [sendrecv]     0 bytes: a barrier
 *
 * In sendrecv each rank sends to the next one, and receives from the one before.
 *
 * Each result is checked once. Rank 0 prints the mean of all ranks as JSON.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* MPICH takes its fast path after some calls of a communicator. */
enum { WARMUPS = 20 };

struct run {
    int rank, size, count, is_exchange;
    float *mine, *result;
};

static void call_once(const struct run *run)
{
    const int next = (run->rank + 1) % run->size, before = (run->rank + run->size - 1) % run->size;
    if (run->is_exchange)
        MPI_Sendrecv(run->mine, run->count, MPI_FLOAT, next, 0, run->result, run->count, MPI_FLOAT,
                     before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (run->count)
        MPI_Allreduce(run->mine, run->result, run->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else
        MPI_Barrier(MPI_COMM_WORLD);
}

/* Whole numbers, so that any order gives these. */
static int is_right(const struct run *run)
{
    const int size = run->size, before = (run->rank + size - 1) % size;
    for (int i = 0; i < run->count; i++) {
        const int own = i % 1000, sum = size * own + size * (size - 1) / 2;
        const float right = (float)(run->is_exchange ? own + before : sum);
        if (run->result[i] < right || run->result[i] > right)
            return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    struct run run = {.is_exchange = argc == 4 && !strcmp(argv[3], "sendrecv")};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &run.size);
    run.count = argc >= 3 ? atoi(argv[1]) / (int)sizeof(float) : 0;
    const int times = argc >= 3 ? atoi(argv[2]) : 1;
    run.mine = calloc((size_t)run.count + 1, sizeof(float));
    run.result = calloc((size_t)run.count + 1, sizeof(float));
    if (!run.mine || !run.result)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < run.count; i++)
        run.mine[i] = (float)(i % 1000 + run.rank);
    for (int i = 0; i < WARMUPS; i++)
        call_once(&run);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int i = 0; i < times; i++)
        call_once(&run);
    double own = (MPI_Wtime() - start) / times, all = 0;
    if (!is_right(&run))
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Reduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (!run.rank)
        printf("{\"time_s\": %.9g}\n", all / run.size);
    free(run.mine);
    free(run.result);
    MPI_Finalize();
    return 0;
}
