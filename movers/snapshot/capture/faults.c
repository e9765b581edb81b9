/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/capture/faults.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

enum { SIGNALS = 2 };

static const int signals[SIGNALS] = {SIGSEGV, SIGBUS};

/* All captures share these: a process has one handler for each signal. */
static pthread_mutex_t faults_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned captures;
static struct sigaction before[SIGNALS];

/* Handlers read it, of any thread: it is there without an allocation. */
static __thread struct snap_fault *reading __attribute__((tls_model("initial-exec")));

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
    struct snap_fault *fault = reading;
    if (!fault || info->si_code <= 0) {
        hand_on(number, info, context);
        return;
    }
    reading = NULL;
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

void snap_fault_begin(struct snap_fault *fault)
{
    fault->address = NULL;
    reading = fault;
}

void snap_fault_end(void)
{
    reading = NULL;
}
