/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The floor under the start of a tier: reads the heads of the records in a log, 64 bytes each, from
 * a mapping of the file, in their order. usage: tier_heads LOG RECORDS RECORD_BYTES. Prints one
 * JSON object.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RING = 16384, HEAD_BYTES = 64 };

static double tier_heads_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A sum of all, so that none is left out. */
static uint64_t read_heads(const uint8_t *log, uint64_t records, uint64_t record_bytes)
{
    uint64_t sum = 0, words[HEAD_BYTES / 8];
    for (uint64_t i = 0; i < records; i++) {
        memcpy(words, log + RING + i * record_bytes, sizeof(words));
        for (int j = 0; j < HEAD_BYTES / 8; j++)
            sum += words[j];
    }
    return sum;
}

int main(int argc, char **argv)
{
    struct stat st;
    const double begun_s = tier_heads_now_s();
    const int fd = argc == 4 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0 || fstat(fd, &st)) {
        perror("tier_heads LOG RECORDS RECORD_BYTES");
        return 1;
    }
    const uint64_t records = strtoull(argv[2], NULL, 10);
    const uint64_t record_bytes = strtoull(argv[3], NULL, 10);
    const uint64_t bytes = (uint64_t)st.st_size;
    const uint8_t *log = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (log == MAP_FAILED || !record_bytes || records * record_bytes > bytes - RING) {
        fprintf(stderr, "tier_heads: the log is shorter than that\n");
        return 1;
    }
    const uint64_t sum = read_heads(log, records, record_bytes);
    printf("{\"time_s\": %.9f, \"sum\": %llu}\n", tier_heads_now_s() - begun_s,
           (unsigned long long)sum);
    return 0;
}
