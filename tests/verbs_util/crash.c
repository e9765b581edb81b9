/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs_util/crash.h"

#include <execinfo.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <ucontext.h>
#include <unistd.h>

#define DEPTH_MAX 16

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1 /* says more itself */
#else
#define HAS_SANITIZER 0
#endif

static uintptr_t place_of(const ucontext_t *context)
{
#if defined(__x86_64__)
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)context->uc_mcontext.pc;
#else
    (void)context;
    return 0;
#endif
}

/* Not only what a handler may call: the process is lost, and a word may help. */
static void tell_of_crash(int signum, siginfo_t *info, void *context)
{
    char thread[17] = "", text[128];
    void *calls[DEPTH_MAX];
    prctl(PR_GET_NAME, thread);
    const int len = snprintf(text, sizeof(text), "FAIL: signal %d at %p by %p in thread %s, by:\n",
                             signum, info->si_addr, (void *)place_of(context), thread);
    if (write(STDERR_FILENO, text, (size_t)len) == len)
        backtrace_symbols_fd(calls, backtrace(calls, DEPTH_MAX), STDERR_FILENO);
    /* SA_RESETHAND: it ends as it would have. */
    raise(signum);
}

void vu_tell_of_crashes(void)
{
    static const int signums[] = {SIGSEGV, SIGABRT};
    const struct sigaction action = {.sa_sigaction = tell_of_crash,
                                     .sa_flags = (int)(SA_SIGINFO | SA_RESETHAND)};
    void *call;
    if (HAS_SANITIZER)
        return;
    backtrace(&call, 1); /* loads what it needs now */
    for (unsigned int i = 0; i < sizeof(signums) / sizeof(signums[0]); i++)
        sigaction(signums[i], &action, NULL);
}
