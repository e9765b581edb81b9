/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The last moment before a fork's clone. Handlers of pthread_atfork() run before it, and glibc
 * locks malloc's arenas after all of them: what is copied in a handler may be half of a change that
 * another thread makes to the heap. So the thread that forks has its system calls shown to itself
 * (Documentation/admin-guide/syscall-user-dispatch.rst, Linux 5.11), until it enters the clone.
 */
#ifndef SW_DEVICE_ADOPT_FORK_MOMENT_H
#define SW_DEVICE_ADOPT_FORK_MOMENT_H

#include <stdbool.h>

/* In the prepare handler: calls `act` on this thread when it enters the clone, in a handler of
 * SIGSYS and with libc's locks held, so `act` may not allocate. False, and nothing has changed,
 * where the kernel or the processor cannot. Signals are blocked until the end. */
bool sw_fork_moment_watch(void (*act)(void));
/* In the handlers after the fork, in both processes. */
void sw_fork_moment_end(void);

#endif
