/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/held_signals.h"

#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's own: the hooks of the program's calls are for SIGBUS, which is not held. */
enum { KERNEL_SET_BYTES = 8 };

static void fill_held(sigset_t *held)
{
    static const int faults[] = {SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT};
    sigfillset(held);
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
        sigdelset(held, faults[i]);
}

void sw_signals_hold(sigset_t *before)
{
    sigset_t held;
    fill_held(&held);
    sigemptyset(before);
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &held, before, (size_t)KERNEL_SET_BYTES);
}

void sw_signals_let_go(const sigset_t *before)
{
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, before, NULL, (size_t)KERNEL_SET_BYTES);
}

void sw_signals_let_go_held(const sigset_t *before)
{
    sigset_t held;
    fill_held(&held);
    for (int number = 1; number < NSIG; number++)
        if (sigismember(before, number) == 1)
            sigdelset(&held, number);
    syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &held, NULL, (size_t)KERNEL_SET_BYTES);
}

/* Finds the signals that wait and go through the mask. */
static void find_held(const sigset_t *before, sigset_t *waiting)
{
    sigemptyset(waiting);
    sigpending(waiting);
    if (sigisemptyset(waiting))
        return;
    for (int number = 1; number < NSIG; number++)
        if (sigismember(waiting, number) == 1 && sigismember(before, number) == 1)
            sigdelset(waiting, number);
}

bool sw_signals_are_held(const sigset_t *before)
{
    sigset_t waiting;
    find_held(before, &waiting);
    return !sigisemptyset(&waiting);
}

bool sw_signals_interrupt(const sigset_t *before)
{
    sigset_t waiting;
    bool interrupts = false;
    find_held(before, &waiting);
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        if (sigismember(&waiting, number) == 1 && !sigaction(number, NULL, &action))
            interrupts |= action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN &&
                          !(action.sa_flags & SA_RESTART);
    }
    return interrupts;
}
