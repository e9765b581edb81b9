/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads of our own in a program: its signals are for its own threads. */
#ifndef SW_BASE_THREAD_H
#define SW_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Starts a thread that is deaf to signals, but for SIGBUS: where it is blocked, a fault of the
 * thread's own ends the process (base/fault.h). 0, or an errno as of pthread_create(). */
static inline int sw_thread_start(pthread_t *thread, const pthread_attr_t *attr,
                                  void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int code = pthread_create(thread, attr, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

#endif
