/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/command/launch.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/command/front.h"
#include "common/time/clock.h"

#define PATIENCE_MS 5000

enum { OF_SIGNAL = 128 }; /* exit statuses of shells */

struct crew {
    pid_t *pids; /* 0: it has ended */
    uint32_t size, alive;
    int code;
    uint64_t kill_ns; /* UINT64_MAX: not yet */
    bool has_killed;
};

static void kill_crew(struct crew *crew)
{
    crew->has_killed = true;
    for (uint32_t rank = 0; rank < crew->size; rank++)
        if (crew->pids[rank])
            kill(crew->pids[rank], SIGKILL);
}

static void fail_crew(struct crew *crew, int code)
{
    if (crew->code)
        return;
    crew->code = code;
    crew->kill_ns = mover_now_ns() + PATIENCE_MS * NS_PER_MS;
}

static uint32_t rank_of_pid(const struct crew *crew, pid_t pid)
{
    uint32_t rank = 0;
    while (rank < crew->size && crew->pids[rank] != pid)
        rank++;
    return rank;
}

/* All that have ended. One that failed has said why; one that was killed could not. */
static void reap_crew(struct crew *crew)
{
    int status;
    pid_t pid;
    while (crew->alive && (pid = waitpid(-1, &status, WNOHANG)) > 0) {
        const uint32_t rank = rank_of_pid(crew, pid);
        if (rank == crew->size)
            continue;
        crew->pids[rank] = 0;
        crew->alive--;
        if (WIFSIGNALED(status) && !crew->has_killed)
            mover_fail("rank %u (process %d) was killed by signal %d: %s", rank, (int)pid,
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
        if (WIFSIGNALED(status))
            fail_crew(crew, MOVER_FAILED);
        else if (WEXITSTATUS(status))
            fail_crew(crew, WEXITSTATUS(status));
    }
}

static void watch_crew(struct crew *crew, const sigset_t *signals)
{
    while (crew->alive) {
        const struct timespec slice = {.tv_nsec = 100 * 1000 * 1000};
        const int number = sigtimedwait(signals, NULL, &slice);
        if (number > 0 && number != SIGCHLD) {
            fail_crew(crew, OF_SIGNAL + number);
            crew->kill_ns = 0;
        }
        reap_crew(crew);
        if (mover_now_ns() >= crew->kill_ns)
            kill_crew(crew);
    }
}

/* Gives it a processor of its own where there are enough: two that poll on one would take turns.
 * One that cannot have it goes on without. */
static void bind_rank(uint32_t rank, uint32_t size)
{
    cpu_set_t allowed, own;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) || (uint32_t)CPU_COUNT(&allowed) < size)
        return;
    CPU_ZERO(&own);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && rank-- == 0) {
            CPU_SET(cpu, &own);
            sched_setaffinity(0, sizeof(own), &own);
            return;
        }
}

static _Noreturn void run_rank(int (*run)(void *context, uint32_t rank), void *context,
                               uint32_t rank, uint32_t size, pid_t parent, const sigset_t *before)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it was too late for that */
        _exit(MOVER_FAILED);
    sigprocmask(SIG_SETMASK, before, NULL);
    bind_rank(rank, size);
    exit(run(context, rank));
}

/* What ends the ranks, and what tells of their ends, which an ignored SIGCHLD does not. SIGHUP that
 * is ignored, as nohup does it, stays so. */
static sigset_t launch_signals(void)
{
    struct sigaction hangup;
    sigset_t signals;
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    if (!sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler != SIG_IGN)
        sigaddset(&signals, SIGHUP);
    return signals;
}

int co_launch(uint32_t size, int (*run)(void *context, uint32_t rank), void *context)
{
    struct crew crew = {
        .pids = calloc(size, sizeof(*crew.pids)), .size = size, .kill_ns = UINT64_MAX};
    const pid_t parent = getpid();
    const sigset_t signals = launch_signals();
    sigset_t before;
    if (!crew.pids)
        return mover_fail("out of memory");
    sigprocmask(SIG_BLOCK, &signals, &before);
    fflush(NULL); /* or each child would print it, too */
    for (uint32_t rank = 0; rank < size && !crew.code; rank++) {
        const pid_t pid = fork();
        if (!pid)
            run_rank(run, context, rank, size, parent, &before);
        if (pid < 0) {
            fail_crew(&crew, mover_fail("cannot start rank %u: %s", rank, strerror(errno)));
            crew.kill_ns = 0;
        } else {
            crew.pids[rank] = pid;
            crew.alive++;
        }
    }
    watch_crew(&crew, &signals);
    free(crew.pids);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return crew.code;
}
