/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_MOVERS_THREAD_H
#define SW_MOVERS_THREAD_H

#include <pthread.h>
#include <signal.h>

/* A thread beside the program's own. Signals are for that one, but for SIGBUS of the thread's own
 * access: where it is blocked, the kernel ends the process. 0, or an errno as of
 * pthread_create(). */
static inline int mover_thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int code = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

#endif
