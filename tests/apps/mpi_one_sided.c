// SPDX-License-Identifier: BSD-2-Clause
// One-sided operations between all ranks: Put, Get, Accumulate and the atomics, under fence, lock
// and post/start.
#include "mpi_all.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { PART_LEN = 100000, ROUNDS = 50 };

// Each rank puts its bytes into its part of everyone's window, and gets them back.
static void put_and_get(MPI_Win win, unsigned char *window, unsigned char *mine,
                        unsigned char *back)
{
    fill_bytes(mine, rank, PART_LEN);
    memset(window, 0xee, (size_t)PART_LEN * (size_t)ranks);
    MPI_Win_fence(0, win);
    for (int peer = 0; peer < ranks; peer++)
        MPI_Put(mine, PART_LEN, MPI_BYTE, peer, (MPI_Aint)rank * PART_LEN, PART_LEN, MPI_BYTE, win);
    MPI_Win_fence(0, win);
    for (int peer = 0; peer < ranks; peer++)
        check_bytes(window + (size_t)peer * PART_LEN, peer, PART_LEN, "a Put");
    for (int peer = 0; peer < ranks; peer++)
        MPI_Get(back + (size_t)peer * PART_LEN, PART_LEN, MPI_BYTE, peer,
                (MPI_Aint)((rank + 1) % ranks) * PART_LEN, PART_LEN, MPI_BYTE, win);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    for (int peer = 0; peer < ranks; peer++)
        check_bytes(back + (size_t)peer * PART_LEN, (rank + 1) % ranks, PART_LEN, "a Get");
    sent_bytes += 2 * (uint64_t)PART_LEN * (uint64_t)(ranks - 1);
}

// The same under a lock of one peer, of all, and by post and start; rows of a matrix are not in one
// piece.
static void put_under_locks(MPI_Win win, unsigned char *window, unsigned char *mine)
{
    const int next = (rank + 1) % ranks;
    const int before = (rank + ranks - 1) % ranks;
    unsigned char back[64];
    MPI_Datatype rows;
    MPI_Type_vector(16, 4, 8, MPI_BYTE, &rows);
    MPI_Type_commit(&rows);
    memset(window, 0xee, (size_t)PART_LEN * (size_t)ranks);
    fill_bytes(mine, rank + 7, PART_LEN);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, win);
    MPI_Put(mine, 64, MPI_BYTE, next, 0, 1, rows, win);
    MPI_Win_flush(next, win);
    MPI_Get(back, 64, MPI_BYTE, next, 0, 1, rows, win);
    MPI_Win_unlock(next, win);
    check_bytes(back, rank + 7, 64, "rows that are put and got");
    MPI_Win_lock_all(0, win);
    MPI_Put(mine, PART_LEN - 128, MPI_BYTE, next, 128, PART_LEN - 128, MPI_BYTE, win);
    MPI_Win_flush_all(win);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    check_bytes(window + 128, before + 7, PART_LEN - 128, "a Put under a lock");
    for (int i = 0; i < 128; i++)
        check(i % 8 < 4 || window[i] == 0xee, "byte %d between two rows was written", i);
    MPI_Win_unlock(rank, win);
    MPI_Type_free(&rows);
}

static void put_after_post(MPI_Win win, unsigned char *window, unsigned char *mine)
{
    MPI_Group all;
    MPI_Group others;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_excl(all, 1, &rank, &others);
    fill_bytes(mine, rank + 3, PART_LEN);
    MPI_Win_post(others, 0, win);
    MPI_Win_start(others, 0, win);
    for (int peer = 0; peer < ranks; peer++)
        if (peer != rank)
            MPI_Put(mine, PART_LEN, MPI_BYTE, peer, (MPI_Aint)rank * PART_LEN, PART_LEN, MPI_BYTE,
                    win);
    MPI_Win_complete(win);
    MPI_Win_wait(win);
    for (int peer = 0; peer < ranks; peer++)
        if (peer != rank)
            check_bytes(window + (size_t)peer * PART_LEN, peer + 3, PART_LEN, "a Put after a post");
    sent_bytes += (uint64_t)PART_LEN * (uint64_t)(ranks - 1);
    MPI_Group_free(&others);
    MPI_Group_free(&all);
}

// Counters on rank 0 that all ranks add to: none is lost, and each value is fetched once.
static void count_together(MPI_Win win, int64_t *window)
{
    const int64_t one = 1;
    int64_t got = -1;
    int64_t before = -1;
    int64_t slots[64];
    for (int i = 0; i < 64; i++)
        slots[i] = i + 1;
    MPI_Win_lock_all(0, win);
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Fetch_and_op(&one, &got, MPI_INT64_T, 0, 0, MPI_SUM, win);
        MPI_Accumulate(slots, 64, MPI_INT64_T, 0, 8, 64, MPI_INT64_T, MPI_SUM, win);
        MPI_Win_flush(0, win);
        check(got > before && got < (int64_t)ranks * ROUNDS, "a counter of %lld gives %lld",
              (long long)before, (long long)got);
        before = got;
    }
    for (int64_t seen = -1, want = 0; seen != want;) { // adds 1 to slot 1
        want = seen == -1 ? 0 : seen;
        const int64_t sum = want + 1;
        MPI_Compare_and_swap(&sum, &want, &seen, MPI_INT64_T, 0, 1, win);
        MPI_Win_flush(0, win);
    }
    MPI_Get_accumulate(&one, 1, MPI_INT64_T, &got, 1, MPI_INT64_T, 0, 2, 1, MPI_INT64_T, MPI_SUM,
                       win);
    MPI_Win_flush(0, win);
    check(got >= 0 && got < ranks, "Get_accumulate gives %lld", (long long)got);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank)
        return;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
    check(window[0] == (int64_t)ranks * ROUNDS, "the counter is %lld", (long long)window[0]);
    check(window[1] == ranks && window[2] == ranks, "%lld swapped, %lld accumulated",
          (long long)window[1], (long long)window[2]);
    for (int i = 0; i < 64; i++)
        check(window[8 + i] == (int64_t)ranks * ROUNDS * (i + 1), "sum %d is %lld", i,
              (long long)window[8 + i]);
    MPI_Win_unlock(0, win);
}

void check_one_sided(void)
{
    const MPI_Aint len = (MPI_Aint)PART_LEN * ranks;
    unsigned char *window = NULL;
    int64_t *counters = calloc(72, sizeof(*counters));
    unsigned char *mine = malloc(PART_LEN);
    unsigned char *back = malloc((size_t)len);
    MPI_Win win;
    MPI_Win counting;
    check(counters && mine && back, "no memory");
    MPI_Win_allocate(len, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
    MPI_Win_create(counters, 72 * sizeof(*counters), sizeof(*counters), MPI_INFO_NULL,
                   MPI_COMM_WORLD, &counting);
    put_and_get(win, window, mine, back);
    put_under_locks(win, window, mine);
    MPI_Barrier(MPI_COMM_WORLD);
    put_after_post(win, window, mine);
    count_together(counting, counters);
    MPI_Win_free(&win);
    MPI_Win_free(&counting);
    free(counters);
    free(mine);
    free(back);
}
