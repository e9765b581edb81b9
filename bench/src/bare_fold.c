/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an all-reduce of two ranks costs without a protocol: two threads of one process, each on a
 * processor of its own, add half of two buffers and write the sums to two others. Prints the time
 * of a round as JSON.
 *
 * usage: bare_fold BYTES TIMES
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 2, WARMUPS = 5 };

static float *sources[THREADS], *sums[THREADS];
static size_t count;
static int times;
static atomic_int arrived;
static double round_s;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void pin_thread(int number)
{
    cpu_set_t allowed, own;
    sched_getaffinity(0, sizeof(allowed), &allowed);
    CPU_ZERO(&own);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && number-- == 0)
            CPU_SET(cpu, &own);
    if (CPU_COUNT(&own))
        sched_setaffinity(0, sizeof(own), &own);
}

static void meet_other(int turn)
{
    arrived++;
    while (arrived < THREADS * turn)
        ;
}

static void fold_half(int number)
{
    const size_t first = number ? count / 2 : 0, end = number ? count : count / 2;
    const float *restrict a = sources[0], *restrict b = sources[1];
    float *restrict to = sums[0], *restrict also = sums[1];
    for (size_t i = first; i < end; i++)
        to[i] = also[i] = a[i] + b[i];
}

static void *fold_thread(void *context)
{
    const int number = *(int *)context;
    double start = 0;
    pin_thread(number);
    for (int turn = 0; turn < WARMUPS + times; turn++) {
        if (turn == WARMUPS)
            start = now_s();
        fold_half(number);
        meet_other(turn + 1);
    }
    if (!number)
        round_s = (now_s() - start) / times;
    return NULL;
}

static float *make_buffer(void)
{
    float *buffer = malloc(count * sizeof(*buffer));
    if (!buffer)
        exit(1);
    for (size_t i = 0; i < count; i++)
        buffer[i] = (float)i;
    return buffer;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    int numbers[THREADS] = {0, 1};
    if (argc != 3 || strtoull(argv[1], NULL, 10) < 8 || atoi(argv[2]) < 1)
        return 2;
    count = strtoull(argv[1], NULL, 10) / sizeof(float);
    times = atoi(argv[2]);
    for (int i = 0; i < THREADS; i++) {
        sources[i] = make_buffer();
        sums[i] = make_buffer();
    }
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, fold_thread, &numbers[i]))
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("{\"time_s\": %.9g}\n", round_s);
    return 0;
}
