/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One signal with two owners. Some SIGBUS are ours (base/fault.h), all others are the program's,
 * which must not notice: what it sets, it is shown, and what is not ours is handed on as the kernel
 * would deliver it.
 *
 * The kernel kills a thread that faults while it blocks SIGBUS. So a thread is open while it may
 * fault for us: the kernel does not block SIGBUS there, and whether the program does is remembered.
 * One that is sent to such a thread is given back to the kernel, which keeps it until the program
 * asks; the thread is closed then, and opened again once none waits.
 *
 * Nothing changes before the signal is first taken, nor in threads that never were opened. A forked
 * child has all of it back. A child of vfork() has memory of its parent, but signals of its own:
 * its calls go to the kernel.
 *
 * Not followed: raw system calls, and masks that siglongjmp(), swapcontext() or a handler that ends
 * restore to a thread that was opened meanwhile.
 */
#ifndef SW_BASE_SIGBUS_H
#define SW_BASE_SIGBUS_H

#include <signal.h>
#include <stdbool.h>

/* What libc does. A library that hooks these names has the functions behind its hooks here. */
struct sw_sigbus_libc {
    int (*action)(int number, const struct sigaction *act, struct sigaction *old);
    int (*mask)(int how, const sigset_t *set, sigset_t *old); /* pthread_sigmask() */
};
extern struct sw_sigbus_libc sw_sigbus_libc;

/* From now on each fault is shown to `is_ours` first, which mends it or says that it is not. */
void sw_sigbus_take(bool (*is_ours)(const siginfo_t *info));

/* As sigaction(SIGBUS, ...) would answer without us. */
int sw_sigbus_action(const struct sigaction *act, struct sigaction *old);
/* As pthread_sigmask() would. */
int sw_sigbus_mask(int how, const sigset_t *set, sigset_t *old);

extern _Thread_local bool sw_sigbus_is_open __attribute__((tls_model("initial-exec")));
void sw_sigbus_open_thread(void);
/* A thread that is made now inherits the mask that the program has set. */
void sw_sigbus_close_thread(void);

/* Before a thread accesses what another process may take away. */
static inline void sw_sigbus_enter(void)
{
    if (__builtin_expect(!sw_sigbus_is_open, 0))
        sw_sigbus_open_thread();
}

#endif
