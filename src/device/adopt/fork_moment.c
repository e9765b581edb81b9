/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System calls other than a clone are made here for the thread, and their result is handed to it:
 * it waits for libc's locks, say. A clone is tried again by its own instruction, after `act`, with
 * the dispatch open. The kernel shows no system call of one range of addresses, which has to hold
 * the return from the handler: so the handler is set by hand, with a restorer of ours.
 */
#include "device/adopt/fork_moment.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/held_signals.h"
#include "base/sigbus.h" /* what libc does */

#ifdef __x86_64__

/* linux/prctl.h and asm/siginfo.h, where libc's headers are older. */
enum {
    SET_DISPATCH = 59,
    DISPATCH_OFF = 0,
    DISPATCH_ON = 1,
    FROM_DISPATCH = 2, /* SYS_USER_DISPATCH */
};
enum { OPEN = 0, SHOWN = 1 };

enum { RESTORER_BYTES = 32, GATE_BYTES = 128, SYSCALL_INSTRUCTION_BYTES = 2, ARGUMENTS = 6 };

/* What rt_sigaction(2) takes; SA_RESTORER of asm/signal.h. */
struct kernel_action {
    void *handler;
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};
enum { WITH_RESTORER = 0x04000000 };

/* One fork at a time: the move lock is held. */
static struct {
    void (*act)(void);
    volatile char selector; /* the kernel reads it at each system call of the thread */
    struct kernel_action before;
    sigset_t mask;
} moment;

/* The range of addresses: the restorer, and from RESTORER_BYTES on a function
 * `long (long number, const unsigned long arguments[ARGUMENTS])`. */
__attribute__((naked, noinline, aligned(32))) static void moment_gate(void)
{
    __asm__("mov $15, %eax\n\t" /* rt_sigreturn */
            "syscall\n\t"
            ".balign 32\n\t"
            "mov %rdi, %rax\n\t"
            "mov %rsi, %r11\n\t"
            "mov 0(%r11), %rdi\n\t"
            "mov 8(%r11), %rsi\n\t"
            "mov 16(%r11), %rdx\n\t"
            "mov 24(%r11), %r10\n\t"
            "mov 32(%r11), %r8\n\t"
            "mov 40(%r11), %r9\n\t"
            "syscall\n\t"
            "ret");
}

static long gate_call(long number, const unsigned long arguments[ARGUMENTS])
{
    const uintptr_t at = (uintptr_t)moment_gate + RESTORER_BYTES;
    return ((long (*)(long, const unsigned long *))at)(number, arguments);
}

static void raw_action(const struct kernel_action *act, struct kernel_action *old)
{
    syscall(SYS_rt_sigaction, SIGSYS, act, old, sizeof(moment.before.mask));
}

/* Somebody else's: a filter of seccomp, or kill(). */
static void moment_hand_on(int number, siginfo_t *info, void *context)
{
    if ((uintptr_t)moment.before.handler > (uintptr_t)SIG_IGN) {
        ((void (*)(int, siginfo_t *, void *))moment.before.handler)(number, info, context);
        return;
    }
    if (moment.before.handler == (void *)SIG_IGN && info->si_code <= 0)
        return;
    raw_action(&moment.before, NULL);
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), number);
}

static void on_system_call(int number, siginfo_t *info, void *context)
{
    const int error = errno;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const long call = registers[REG_RAX];
    if (info->si_code != FROM_DISPATCH) {
        moment_hand_on(number, info, context);
        return;
    }
    moment.selector = OPEN;
    if (call == SYS_clone || call == SYS_clone3 || call == SYS_fork || call == SYS_vfork ||
        call == SYS_rt_sigreturn) {
        moment.act();
        registers[REG_RIP] -= SYSCALL_INSTRUCTION_BYTES;
        errno = error;
        return;
    }
    const unsigned long arguments[ARGUMENTS] = {
        (unsigned long)registers[REG_RDI], (unsigned long)registers[REG_RSI],
        (unsigned long)registers[REG_RDX], (unsigned long)registers[REG_R10],
        (unsigned long)registers[REG_R8],  (unsigned long)registers[REG_R9]};
    registers[REG_RAX] = gate_call(call, arguments);
    errno = error;
    moment.selector = SHOWN;
}

/* A handler of the program would make system calls amid the fork, and SIGSYS has to come. */
static void moment_mask(void)
{
    sigset_t open;
    sw_signals_hold(&moment.mask);
    sigemptyset(&open);
    sigaddset(&open, SIGSYS);
    sw_sigbus_libc.mask(SIG_UNBLOCK, &open, NULL);
}

bool sw_fork_moment_watch(void (*act)(void))
{
    const struct kernel_action ours = {(void *)on_system_call, SA_SIGINFO | WITH_RESTORER,
                                       moment_gate, 0};
    moment.selector = OPEN;
    if (prctl(SET_DISPATCH, DISPATCH_ON, moment_gate, GATE_BYTES, &moment.selector))
        return false;
    moment.act = act;
    raw_action(&ours, &moment.before);
    moment_mask();
    moment.selector = SHOWN;
    return true;
}

void sw_fork_moment_end(void)
{
    struct kernel_action now;
    if (!moment.act)
        return;
    moment.selector = OPEN; /* a clone opened it, unless the fork failed before */
    moment.act = NULL;
    prctl(SET_DISPATCH, DISPATCH_OFF, 0, 0, 0);
    raw_action(NULL, &now);
    if (now.handler == (void *)on_system_call) /* another thread may have set it meanwhile */
        raw_action(&moment.before, NULL);
    sw_signals_let_go(&moment.mask);
}

#else

bool sw_fork_moment_watch(void (*act)(void))
{
    (void)act;
    return false;
}

void sw_fork_moment_end(void)
{
}

#endif
