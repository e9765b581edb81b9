/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One rank of some, the last of which is killed, for bench/lib/coll_death.py:
 *
 *     coll_death RANK RANKS HOST:PORT BYTES
 *
 * All sum BYTES again and again; 0: the others wait for the last one, asleep. It is killed by its
 * own timer. Prints by CLOCK_MONOTONIC when that was, or when this rank was told.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sidewire/coll.h"

enum { LIFE_MS = 700 };

static int died_fd = -1;

static double death_clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int death_fail(const char *text)
{
    fprintf(stderr, "coll_death: %s\n", text);
    return 1;
}

static void tell_death(int signal)
{
    const double now_s = death_clock_s();
    (void)signal;
    if (write(died_fd, &now_s, sizeof(now_s)) == sizeof(now_s))
        kill(getpid(), SIGKILL);
}

static void die_later(void)
{
    const struct itimerval life = {.it_value.tv_usec = LIFE_MS * 1000};
    signal(SIGALRM, tell_death);
    setitimer(ITIMER_REAL, &life, NULL);
}

/* Until it fails. */
static enum sw_coll_status sum_on(struct sw_coll *coll, size_t bytes, struct sw_coll_error *error)
{
    float *mine = calloc(bytes + 1, 1), *sums = calloc(bytes + 1, 1);
    enum sw_coll_status status = mine && sums ? SW_COLL_OK : SW_COLL_NO_MEMORY;
    while (!status)
        status = sw_coll_all_reduce(coll, mine, sums, bytes / sizeof(float), SW_COLL_F32,
                                    SW_COLL_SUM, 0, error);
    free(mine);
    free(sums);
    return status;
}

static int be_rank(const struct sw_coll_options *options, size_t bytes)
{
    static const struct sw_coll_call barrier = {.kind = SW_COLL_BARRIER};
    struct sw_coll_error error = {.text = "no memory"};
    struct sw_coll *coll;
    if (sw_coll_open(options, &error, &coll) || sw_coll_run(coll, &barrier, 0, &error))
        return death_fail(error.text);
    if (died_fd >= 0)
        die_later();
    if (died_fd >= 0 && !bytes)
        pause();
    const enum sw_coll_status status =
        bytes ? sum_on(coll, bytes, &error) : sw_coll_run(coll, &barrier, 0, &error);
    const double known_s = death_clock_s();
    if (status != SW_COLL_RANK_GONE)
        return death_fail(error.text);
    printf("{\"known_s\": %.9f}\n", known_s);
    sw_coll_close(coll);
    return 0;
}

/* The rank is a child, as this process has to tell of its death. */
static int be_victim(const struct sw_coll_options *options, size_t bytes)
{
    int ends[2];
    double died_s;
    if (pipe(ends))
        return death_fail("no pipe");
    const pid_t pid = fork();
    if (!pid) {
        died_fd = ends[1];
        _exit(be_rank(options, bytes));
    }
    close(ends[1]);
    const ssize_t got = read(ends[0], &died_s, sizeof(died_s));
    waitpid(pid, NULL, 0);
    if (got != sizeof(died_s))
        return death_fail("the last rank has ended in another way");
    printf("{\"died_s\": %.9f}\n", died_s);
    return 0;
}

int main(int argc, char **argv)
{
    struct sw_coll_options options;
    if (argc != 5)
        return 2;
    sw_coll_options_init(&options);
    options.rank = (uint32_t)atoi(argv[1]);
    options.size = (uint32_t)atoi(argv[2]);
    options.meet = argv[3];
    const size_t bytes = strtoul(argv[4], NULL, 10);
    return options.rank + 1 == options.size ? be_victim(&options, bytes) : be_rank(&options, bytes);
}
