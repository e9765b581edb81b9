// SPDX-License-Identifier: BSD-2-Clause
// Collective operations, blocking and not, with numbers of which each result is known.
#include "mpi_all.h"

#include <mpi.h>
#include <stdlib.h>

enum { COUNT_MAX = 1 << 17 };

static const int COUNTS[] = {1, 33, 5000, COUNT_MAX};

static int number_of(int whose, int at)
{
    return (whose + 1) * 1000 + at % 997;
}

static void fill_numbers(int *data, int whose, int count)
{
    for (int i = 0; i < count; i++)
        data[i] = number_of(whose, i);
}

// `data` has the sums over the ranks 0 to `last` (0 of none).
static void check_sums(const int *data, int last, int count, const char *what)
{
    for (int i = 0; i < count; i++) {
        int sum = 0;
        for (int whose = 0; whose <= last; whose++)
            sum += number_of(whose, i);
        check(data[i] == sum, "%s: number %d of %d is %d, not %d", what, i, count, data[i], sum);
    }
}

static void check_numbers(const int *data, int whose, int from, int count, const char *what)
{
    for (int i = 0; i < count; i++)
        check(data[i] == number_of(whose, from + i), "%s: number %d of %d is %d", what, i, count,
              data[i]);
}

static void sum_up(int *mine, int *all, int count)
{
    MPI_Request request;
    const int root = ranks - 1;
    fill_numbers(mine, rank, count);
    MPI_Reduce(mine, all, count, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
    if (rank == root)
        check_sums(all, ranks - 1, count, "Reduce");
    MPI_Allreduce(mine, all, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check_sums(all, ranks - 1, count, "Allreduce");
    MPI_Scan(mine, all, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check_sums(all, rank, count, "Scan");
    MPI_Exscan(mine, all, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank)
        check_sums(all, rank - 1, count, "Exscan");
    MPI_Iallreduce(mine, all, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_sums(all, ranks - 1, count, "Iallreduce");
    sent_bytes += sizeof(int) * (uint64_t)count;
}

static void hand_out(int *mine, int *all, int count)
{
    MPI_Request request;
    fill_numbers(all, rank == 0 ? 0 : rank + 20, count);
    MPI_Bcast(all, count, MPI_INT, 0, MPI_COMM_WORLD);
    check_numbers(all, 0, 0, count, "Bcast");
    fill_numbers(all, rank == 1 ? 1 : rank + 20, count);
    MPI_Ibcast(all, count, MPI_INT, 1, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_numbers(all, 1, 0, count, "Ibcast");
    for (int peer = 0; rank == 0 && peer < ranks; peer++)
        fill_numbers(all + (size_t)peer * (size_t)count, peer, count);
    MPI_Scatter(all, count, MPI_INT, mine, count, MPI_INT, 0, MPI_COMM_WORLD);
    check_numbers(mine, rank, 0, count, "Scatter");
    sent_bytes += rank == 0 ? 3 * sizeof(int) * (uint64_t)count : 0;
}

static void collect(int *mine, int *all, int count)
{
    fill_numbers(mine, rank, count);
    MPI_Gather(mine, count, MPI_INT, all, count, MPI_INT, 1, MPI_COMM_WORLD);
    for (int peer = 0; rank == 1 && peer < ranks; peer++)
        check_numbers(all + (size_t)peer * (size_t)count, peer, 0, count, "Gather");
    MPI_Allgather(mine, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD);
    for (int peer = 0; peer < ranks; peer++)
        check_numbers(all + (size_t)peer * (size_t)count, peer, 0, count, "Allgather");
    MPI_Reduce_scatter_block(all, mine, count, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    check_numbers(mine, rank, 0, count, "Reduce_scatter_block");
    sent_bytes += sizeof(int) * (uint64_t)count;
}

// Rank r sends p numbers more to rank p than to rank 0.
static void exchange(int *mine, int *all, int count)
{
    int out_counts[RANKS_MAX];
    int out_at[RANKS_MAX];
    int in_counts[RANKS_MAX];
    int in_at[RANKS_MAX];
    const int part = count / ranks;
    fill_numbers(mine, rank, part * ranks);
    MPI_Alltoall(mine, part, MPI_INT, all, part, MPI_INT, MPI_COMM_WORLD);
    for (int peer = 0; peer < ranks; peer++)
        check_numbers(all + (size_t)peer * (size_t)part, peer, rank * part, part, "Alltoall");
    if (part < ranks)
        return;
    for (int peer = 0; peer < ranks; peer++) {
        out_counts[peer] = part - ranks + peer;
        in_counts[peer] = part - ranks + rank;
        out_at[peer] = in_at[peer] = peer * part;
    }
    MPI_Alltoallv(mine, out_counts, out_at, MPI_INT, all, in_counts, in_at, MPI_INT,
                  MPI_COMM_WORLD);
    for (int peer = 0; peer < ranks; peer++)
        check_numbers(all + in_at[peer], peer, rank * part, in_counts[peer], "Alltoallv");
    sent_bytes += 2 * sizeof(int) * (uint64_t)(part - ranks) * (uint64_t)(ranks - 1);
}

// Half of the ranks by themselves, in the opposite order.
static void split_up(int *mine, int *all)
{
    MPI_Comm half;
    int mine_rank = 0;
    int mine_ranks = 0;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_rank(half, &mine_rank);
    MPI_Comm_size(half, &mine_ranks);
    check(mine_ranks == ranks / 2, "half of %d is %d", ranks, mine_ranks);
    mine[0] = rank;
    MPI_Allgather(mine, 1, MPI_INT, all, 1, MPI_INT, half);
    check(all[mine_rank] == rank, "rank %d is not %d of its half", rank, mine_rank);
    for (int i = 1; i < mine_ranks; i++)
        check(all[i] == all[i - 1] - 2, "a half has another order");
    MPI_Comm_free(&half);
}

void check_collectives(void)
{
    int *mine = malloc(COUNT_MAX * sizeof(*mine));
    int *all = malloc(RANKS_MAX * COUNT_MAX * sizeof(*all));
    check(mine && all, "no memory");
    for (size_t i = 0; i < sizeof(COUNTS) / sizeof(*COUNTS); i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        sum_up(mine, all, COUNTS[i]);
        hand_out(mine, all, COUNTS[i]);
        collect(mine, all, COUNTS[i]);
        exchange(mine, all, COUNTS[i]);
    }
    split_up(mine, all);
    free(mine);
    free(all);
}
