/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/capture/faults.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { SIGNALS = 2, READERS_MAX = 256 };

static const int signals[SIGNALS] = {SIGSEGV, SIGBUS};

/* All captures share these: a process has one handler for each signal. */
static pthread_mutex_t faults_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned captures;
static struct sigaction before[SIGNALS];

/* Threads that read now. A table, and no variable of each thread: those are allocated when a thread
 * uses them first, which a handler may not do; and libraries that are loaded late find no room for
 * those that are there from the beginning. */
static struct reader {
    _Atomic uintptr_t thread; /* 0: free */
    struct snap_fault *fault;
} readers[READERS_MAX];

/* The table is of this process. A child of fork() has a copy, and its new threads get the stacks
 * of threads that its parent had, and with them their names. */
static pid_t process;

static struct reader *find_reader(void)
{
    const uintptr_t self = (uintptr_t)pthread_self();
    for (int i = 0; i < READERS_MAX; i++)
        if (atomic_load_explicit(&readers[i].thread, memory_order_relaxed) == self)
            return &readers[i];
    return NULL;
}

/* As if this one had not been there. */
static void hand_on(int number, siginfo_t *info, void *context)
{
    const struct sigaction *old = &before[number == SIGBUS];
    sigset_t blocked = old->sa_mask;
    if (!(old->sa_flags & SA_SIGINFO) &&
        (old->sa_handler == SIG_DFL || old->sa_handler == SIG_IGN)) {
        const bool is_sent = info->si_code <= 0; /* by a process: it does not come again */
        const struct sigaction end = {.sa_handler = SIG_DFL};
        if (is_sent && old->sa_handler == SIG_IGN)
            return;
        sigaction(number, &end, NULL);
        if (is_sent)
            raise(number);
        return;
    }
    if (!(old->sa_flags & SA_NODEFER))
        sigaddset(&blocked, number);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL); /* the end of this handler takes it back */
    if (old->sa_flags & SA_SIGINFO)
        old->sa_sigaction(number, info, context);
    else
        old->sa_handler(number);
}

static void catch_fault(int number, siginfo_t *info, void *context)
{
    struct reader *reader = info->si_code > 0 && getpid() == process ? find_reader() : NULL;
    if (!reader) {
        hand_on(number, info, context);
        return;
    }
    struct snap_fault *fault = reader->fault;
    snap_fault_end(fault);
    fault->address = info->si_addr;
    siglongjmp(fault->back, 1);
}

/* Signals are not blocked while it runs: it may leave by siglongjmp(), which restores no mask. */
void snap_faults_open(void)
{
    struct sigaction now = {.sa_sigaction = catch_fault,
                            .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESTART};
    sigemptyset(&now.sa_mask);
    pthread_mutex_lock(&faults_lock);
    if (process != getpid()) {
        memset(readers, 0, sizeof(readers));
        process = getpid();
    }
    for (int i = 0; i < SIGNALS && captures == 0; i++) {
        struct sigaction old;
        sigaction(signals[i], NULL, &old);
        if (old.sa_sigaction == catch_fault)
            continue; /* a later handler that went back to it kept it there */
        before[i] = old;
        sigaction(signals[i], &now, NULL);
    }
    captures++;
    pthread_mutex_unlock(&faults_lock);
}

/* A later handler of the program stays. */
void snap_faults_close(void)
{
    pthread_mutex_lock(&faults_lock);
    captures--;
    for (int i = 0; i < SIGNALS && captures == 0; i++) {
        struct sigaction now;
        sigaction(signals[i], NULL, &now);
        if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == catch_fault)
            sigaction(signals[i], &before[i], NULL);
    }
    pthread_mutex_unlock(&faults_lock);
}

/* More threads than there are places for read without a net. */
void snap_fault_begin(struct snap_fault *fault)
{
    const uintptr_t self = (uintptr_t)pthread_self();
    fault->address = NULL;
    fault->place = -1;
    for (int i = 0; i < READERS_MAX && fault->place < 0; i++) {
        uintptr_t none = 0;
        if (!atomic_compare_exchange_strong(&readers[i].thread, &none, self))
            continue;
        readers[i].fault = fault;
        fault->place = i;
    }
    atomic_signal_fence(memory_order_seq_cst); /* a handler of this thread finds it */
}

void snap_fault_end(struct snap_fault *fault)
{
    atomic_signal_fence(memory_order_seq_cst);
    if (fault->place >= 0)
        atomic_store(&readers[fault->place].thread, 0);
    fault->place = -1;
}
