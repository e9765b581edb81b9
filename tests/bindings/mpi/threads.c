/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An MPI program with several threads in MPI at once (MPI_THREAD_MULTIPLE). Each has a communicator
 * of its own, and calls that block beside others that do not.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 3, ROUNDS = 100, COUNT = 20000, FEW = 7, FREED = 40, CALLS = 24 };

static int rank, size;

static void check(int is_right, const char *what)
{
    if (is_right)
        return;
    fprintf(stderr, "rank %d: wrong %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The sums of rank + i. */
static double sum_at(int i)
{
    return size * (size - 1) / 2 + (double)size * i;
}

static void go_round(MPI_Comm communicator, int round, const double *mine, double *sums)
{
    int own = rank + round, sum = 0, said = rank == round % size ? round : -1, ranks = 0;
    int count = round % 3 ? COUNT : FEW;
    MPI_Request requests[3];
    MPI_Status statuses[3];
    MPI_Iallreduce(&own, &sum, 1, MPI_INT, MPI_SUM, communicator, &requests[0]);
    MPI_Iallreduce(mine, sums, count, MPI_DOUBLE, MPI_SUM, communicator, &requests[1]);
    MPI_Ibcast(&said, 1, MPI_INT, round % size, communicator, &requests[2]);
    MPI_Allreduce(&rank, &ranks, 1, MPI_INT, MPI_SUM, communicator);
    if (round % 2)
        MPI_Waitall(3, requests, statuses);
    for (int i = 2; i >= 0 && !(round % 2); i--)
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    check(sum == (int)sum_at(round), "sum");
    check(sums[count - 1] == sum_at(count - 1), "sums");
    check(said == round, "broadcast");
    check(ranks == size * (size - 1) / 2, "sum of a call that blocks");
}

static void *run_thread(void *of)
{
    double *mine = calloc(COUNT, sizeof(*mine)), *sums = calloc(COUNT, sizeof(*sums));
    for (int i = 0; i < COUNT; i++)
        mine[i] = rank + i;
    MPI_Barrier(*(MPI_Comm *)of);
    for (int i = 0; i < ROUNDS; i++)
        go_round(*(MPI_Comm *)of, i, mine, sums);
    free(mine);
    free(sums);
    return NULL;
}

static void *free_communicator(void *of)
{
    MPI_Comm_free(of);
    return NULL;
}

/* A thread frees the communicator while another one waits for the last calls by it. */
static void free_while_waiting(int round)
{
    MPI_Comm communicator;
    MPI_Request requests[CALLS];
    pthread_t thread;
    int own = rank + round, sums[CALLS];
    MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
    MPI_Barrier(communicator);
    for (int i = 0; i < CALLS; i++)
        MPI_Iallreduce(&own, &sums[i], 1, MPI_INT, MPI_SUM, communicator, &requests[i]);
    pthread_create(&thread, NULL, free_communicator, &communicator);
    if (round % 2)
        MPI_Waitall(CALLS, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < CALLS; i++) {
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        check(sums[i] == (int)sum_at(round), "sum by a communicator that is freed");
    }
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (level < MPI_THREAD_MULTIPLE)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Comm communicators[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &communicators[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, run_thread, &communicators[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_free(&communicators[i]);
    /* Open MPI crashes by itself where a communicator is freed before its request is waited for. */
    for (int i = 0; argc > 1 && i < FREED; i++)
        free_while_waiting(i);
    if (rank == 0)
        printf("%d ranks, %d threads\n", size, THREADS);
    MPI_Finalize();
    return 0;
}
