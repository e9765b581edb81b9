// SPDX-License-Identifier: BSD-2-Clause
// mpi_all DEVICE: sends, one-sided and collective operations of MPI, all data checked. Rank 0 says
// how much was sent at the least, and what the device's own counters say meanwhile: the way the
// data took.
#include "mpi_all.h"

#include <inttypes.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int rank;
int ranks;
uint64_t sent_bytes;
uint64_t checks;

void end_in_failure(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "rank %d: WRONG: ", rank);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

static unsigned char byte_of(int whose, int at)
{
    return (unsigned char)(whose * 61 + at * 7 + (at >> 8) * 13);
}

void fill_bytes(unsigned char *data, int whose, int len)
{
    for (int i = 0; i < len; i++)
        data[i] = byte_of(whose, i);
}

void check_bytes(const unsigned char *data, int whose, int len, const char *what)
{
    for (int i = 0; i < len; i++)
        check(data[i] == byte_of(whose, i), "%s of rank %d: byte %d of %d", what, whose, i, len);
}

// Payload that left by the device, by all processes: `port_xmit_data` counts words.
static uint64_t device_bytes(const char *device)
{
    char path[256];
    uint64_t words = 0;
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/counters/port_xmit_data",
             device);
    FILE *file = fopen(path, "re");
    check(file, "%s cannot be read", path);
    check(fscanf(file, "%" SCNu64, &words) == 1, "%s has no number", path);
    fclose(file);
    return 4 * words;
}

int main(int argc, char **argv)
{
    uint64_t before = 0;
    uint64_t all_sent = 0;
    uint64_t all_checks = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    check(argc == 2 && ranks <= RANKS_MAX && ranks % 2 == 0,
          "an even number of ranks and a device");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        before = device_bytes(argv[1]);
    MPI_Barrier(MPI_COMM_WORLD);
    check_sends();
    check_one_sided();
    check_collectives();
    MPI_Reduce(&sent_bytes, &all_sent, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&checks, &all_checks, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks, %" PRIu64 " checks, %" PRIu64 " bytes to others, %" PRIu64
               " by the device\n",
               ranks, all_checks, all_sent, device_bytes(argv[1]) - before);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
