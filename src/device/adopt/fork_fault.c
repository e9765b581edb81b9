/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/adopt/fork_fault.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sigbus.h" /* what libc does */

/* One fork at a time: the move lock is held. */
static struct {
    bool (*mend)(const void *address);
    pid_t parent;
    struct sigaction before;
    sigset_t mask;
} watch;

/* The fault happens again, or the signal is sent again: then to the program, as it has set it. */
static void fault_give_back(int number, siginfo_t *info)
{
    sw_sigbus_libc.action(number, &watch.before, NULL);
    if (info->si_code <= 0)
        syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), number, info);
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    const int error = errno;
    if (info->si_code <= 0 || getpid() == watch.parent || !watch.mend(info->si_addr))
        fault_give_back(number, info);
    errno = error;
}

/* The kernel ends a thread that faults while it blocks the signal. */
void sw_fork_fault_watch(bool (*mend)(const void *address))
{
    struct sigaction ours = {.sa_flags = SA_SIGINFO};
    sigset_t fault;
    watch.mend = mend;
    watch.parent = getpid();
    ours.sa_sigaction = on_fault;
    sigemptyset(&ours.sa_mask);
    sw_sigbus_libc.action(SIGSEGV, &ours, &watch.before);
    sigemptyset(&fault);
    sigaddset(&fault, SIGSEGV);
    sw_sigbus_libc.mask(SIG_UNBLOCK, &fault, &watch.mask);
}

void sw_fork_fault_end(void)
{
    struct sigaction now;
    if (!watch.mend)
        return;
    watch.mend = NULL;
    if (sigismember(&watch.mask, SIGSEGV)) {
        sigset_t fault;
        sigemptyset(&fault);
        sigaddset(&fault, SIGSEGV);
        sw_sigbus_libc.mask(SIG_BLOCK, &fault, NULL);
    }
    /* Another thread may have set it meanwhile. */
    if (!sw_sigbus_libc.action(SIGSEGV, NULL, &now) && now.sa_flags & SA_SIGINFO &&
        now.sa_sigaction == on_fault)
        sw_sigbus_libc.action(SIGSEGV, &watch.before, NULL);
}
