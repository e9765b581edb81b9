// SPDX-License-Identifier: BSD-2-Clause
// Sends of every kind between all ranks: each byte of what arrives is looked at.
#include "mpi_all.h"

#include <mpi.h>
#include <stdlib.h>

static const int SIZES[] = {0, 1, 7, 64, 255, 1024, 4096, 8193, 65537, 262144, 1 << 20, 4 << 20};

enum { SIZES_COUNT = sizeof(SIZES) / sizeof(*SIZES), TAG = 5, BURST = 64, LONGEST = 4 << 20 };

static void take_message(const unsigned char *data, const MPI_Status *status, int from, int len)
{
    int count = -1;
    MPI_Get_count(status, MPI_BYTE, &count);
    check(count == len, "a message of %d bytes from %d has %d", len, from, count);
    check(status->MPI_SOURCE == from, "a message of %d says it is from %d", from,
          status->MPI_SOURCE);
    check_bytes(data, from, len, "a message");
}

// Blocking, to the next rank and from the one before.
static void send_around(unsigned char *out, unsigned char *in)
{
    const int next = (rank + 1) % ranks;
    const int before = (rank + ranks - 1) % ranks;
    for (int i = 0; i < SIZES_COUNT; i++) {
        MPI_Status status;
        fill_bytes(out, rank, SIZES[i]);
        fill_bytes(in, ranks + 1, SIZES[i]);
        if (rank % 2 == 0 && i % 2 == 0) {
            MPI_Ssend(out, SIZES[i], MPI_BYTE, next, TAG, MPI_COMM_WORLD);
            MPI_Recv(in, LONGEST, MPI_BYTE, before, TAG, MPI_COMM_WORLD, &status);
        } else if (i % 2 == 0) {
            MPI_Recv(in, LONGEST, MPI_BYTE, before, TAG, MPI_COMM_WORLD, &status);
            MPI_Send(out, SIZES[i], MPI_BYTE, next, TAG, MPI_COMM_WORLD);
        } else {
            MPI_Sendrecv(out, SIZES[i], MPI_BYTE, next, TAG, in, LONGEST, MPI_BYTE, before, TAG,
                         MPI_COMM_WORLD, &status);
        }
        sent_bytes += SIZES[i];
        take_message(in, &status, before, SIZES[i]);
    }
}

// All at once in both directions; the receives are posted before (odd sizes) or after the sends.
static void send_all_at_once(unsigned char *out, unsigned char *in)
{
    const int len = 300000;
    MPI_Request requests[2 * RANKS_MAX];
    MPI_Status statuses[2 * RANKS_MAX];
    fill_bytes(out, rank, len);
    for (int round = 0; round < 2; round++) {
        for (int phase = 0; phase < 2; phase++) {
            for (int peer = 0; peer < ranks; peer++)
                if (phase == round)
                    MPI_Irecv(in + (size_t)peer * len, len, MPI_BYTE, peer, TAG, MPI_COMM_WORLD,
                              &requests[peer]);
                else
                    MPI_Isend(out, len, MPI_BYTE, peer, TAG, MPI_COMM_WORLD,
                              &requests[ranks + peer]);
        }
        MPI_Waitall(2 * ranks, requests, statuses);
        sent_bytes += (uint64_t)len * (uint64_t)(ranks - 1);
        for (int peer = 0; peer < ranks; peer++)
            take_message(in + (size_t)peer * len, &statuses[peer], peer, len);
    }
}

// A burst of short ones to rank 0, which takes them from anyone with any tag: in order of each.
static void send_to_anyone(void)
{
    int value = 0;
    int next_of[RANKS_MAX] = {0};
    for (int i = 0; rank != 0 && i < BURST; i++)
        MPI_Send(&i, 1, MPI_INT, 0, i, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < BURST * (ranks - 1); i++) {
        MPI_Status seen;
        MPI_Status status;
        MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &seen);
        MPI_Recv(&value, 1, MPI_INT, seen.MPI_SOURCE, seen.MPI_TAG, MPI_COMM_WORLD, &status);
        check(value == status.MPI_TAG, "tag %d brings %d", status.MPI_TAG, value);
        check(value == next_of[status.MPI_SOURCE]++, "%d of rank %d overtakes", value,
              status.MPI_SOURCE);
    }
    sent_bytes += rank ? BURST * sizeof(value) : 0;
    MPI_Barrier(MPI_COMM_WORLD); // else it takes what comes next as well
}

// One that is posted and taken back, and persistent ones in both directions.
static void send_again_and_again(unsigned char *out, unsigned char *in)
{
    const int peer = rank ^ 1;
    const int len = 20000;
    int cancelled = 0;
    MPI_Request requests[2];
    MPI_Status status;
    MPI_Status statuses[2];
    MPI_Irecv(in, len, MPI_BYTE, peer, TAG + 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Cancel(&requests[0]);
    MPI_Wait(&requests[0], &status);
    MPI_Test_cancelled(&status, &cancelled);
    check(cancelled, "a receive that nobody meets is not cancelled");
    MPI_Send_init(out, len, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(in, len, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[1]);
    for (int i = 0; i < 20; i++) {
        fill_bytes(out, rank + i, len);
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, statuses);
        check_bytes(in, peer + i, len, "a persistent receive");
    }
    sent_bytes += 20 * (uint64_t)len;
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

void check_sends(void)
{
    unsigned char *out = malloc(LONGEST);
    unsigned char *in = malloc(LONGEST);
    check(out && in, "no memory");
    send_around(out, in);
    send_all_at_once(out, in);
    send_to_anyone();
    send_again_and_again(out, in);
    free(out);
    free(in);
}
