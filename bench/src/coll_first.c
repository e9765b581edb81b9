/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One rank from its start to its first sum, for bench/lib/coll_gloo.py:
 *
 *     coll_first RANK RANKS FOLDER HOST:PORT BYTES
 *
 * It is ready when FOLDER/ready.RANK is there, and begins when FOLDER/go is, as gloo_all_reduce
 * does. The sum is checked. Prints by CLOCK_MONOTONIC when it began, and when it had the sum.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "sidewire/coll.h"

static double clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void await_start(const char *folder, const char *rank)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/ready.%s", folder, rank);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    snprintf(path, sizeof(path), "%s/go", folder);
    while (access(path, F_OK))
        usleep(1000);
}

static int has_sums(const float *sums, int count, int size)
{
    for (int i = 0; i < count; i++) {
        const float right = (float)(size * (i % 1000) + size * (size - 1) / 2);
        if (sums[i] < right || sums[i] > right)
            return 0;
    }
    return 1;
}

static int fail_with(const char *text)
{
    fprintf(stderr, "coll_first: %s\n", text);
    return 1;
}

int main(int argc, char **argv)
{
    struct sw_coll_options options;
    struct sw_coll_error error;
    struct sw_coll *coll;
    if (argc != 6)
        return 2;
    sw_coll_options_init(&options);
    options.rank = (uint32_t)atoi(argv[1]);
    options.size = (uint32_t)atoi(argv[2]);
    options.meet = argv[4];
    const int count = atoi(argv[5]) / (int)sizeof(float);
    float *mine = calloc((size_t)count + 1, sizeof(*mine));
    float *sums = calloc((size_t)count + 1, sizeof(*sums));
    if (!mine || !sums)
        return fail_with("no memory");
    for (int i = 0; i < count; i++)
        mine[i] = (float)(i % 1000 + (int)options.rank);
    await_start(argv[3], argv[1]);
    const double begun_s = clock_s();
    if (sw_coll_open(&options, &error, &coll))
        return fail_with(error.text);
    if (sw_coll_all_reduce(coll, mine, sums, (uint64_t)count, SW_COLL_F32, SW_COLL_SUM, 0, &error))
        return fail_with(error.text);
    const double first_s = clock_s();
    if (!has_sums(sums, count, (int)options.size))
        return fail_with("a wrong sum");
    printf("{\"begun_s\": %.9f, \"first_s\": %.9f}\n", begun_s, first_s);
    sw_coll_close(coll);
    free(mine);
    free(sums);
    return 0;
}
