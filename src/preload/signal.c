/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of the calls that say what a signal does: our handler of SIGBUS stays in front of the
 * program's (base/sigbus.h). The older calls are made of sigaction(), as libc makes them. */
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/sigbus.h"
#include "preload/real.h"

typedef void (*handler_fn)(int);

int __sigaction(int number, const struct sigaction *act, struct sigaction *old);
handler_fn bsd_signal(int number, handler_fn handler);
handler_fn __sysv_signal(int number, handler_fn handler);

static bool is_ready;          /* the constructor has run */
static atomic_bool interrupts; /* siginterrupt(SIGBUS): signal() leaves out SA_RESTART */

__attribute__((constructor(103))) static void name_libc(void)
{
    sw_sigbus_libc.action = SW_REAL(sigaction);
    sw_sigbus_libc.mask = SW_REAL(pthread_sigmask);
    is_ready = true;
}

SW_HOOK int sigaction(int number, const struct sigaction *act, struct sigaction *old)
{
    if (number != SIGBUS || !is_ready)
        return SW_REAL(sigaction)(number, act, old);
    return sw_sigbus_action(act, old);
}

SW_HOOK int __sigaction(int number, const struct sigaction *act, struct sigaction *old)
{
    return sigaction(number, act, old);
}

static handler_fn set_bus(handler_fn handler, int flags, bool masks_itself)
{
    struct sigaction act = {.sa_handler = handler, .sa_flags = flags}, old;
    sigemptyset(&act.sa_mask);
    if (masks_itself)
        sigaddset(&act.sa_mask, SIGBUS);
    return sigaction(SIGBUS, &act, &old) ? SIG_ERR : old.sa_handler;
}

SW_HOOK handler_fn signal(int number, handler_fn handler)
{
    if (number != SIGBUS || handler == SIG_ERR)
        return SW_REAL(signal)(number, handler);
    return set_bus(handler, atomic_load(&interrupts) ? 0 : SA_RESTART, true);
}

SW_HOOK handler_fn bsd_signal(int number, handler_fn handler)
{
    return signal(number, handler);
}

SW_HOOK handler_fn ssignal(int number, handler_fn handler)
{
    return signal(number, handler);
}

SW_HOOK handler_fn sysv_signal(int number, handler_fn handler)
{
    if (number != SIGBUS || handler == SIG_ERR)
        return SW_REAL(sysv_signal)(number, handler);
    return set_bus(handler, (int)(SA_RESETHAND | SA_NODEFER | SA_INTERRUPT), false);
}

SW_HOOK handler_fn __sysv_signal(int number, handler_fn handler)
{
    return sysv_signal(number, handler);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
SW_HOOK handler_fn sigset(int number, handler_fn handler)
{
    sigset_t bus, before;
    struct sigaction old = {.sa_handler = SIG_ERR};
    if (number != SIGBUS)
        return SW_REAL(sigset)(number, handler);
    sigemptyset(&bus);
    sigaddset(&bus, SIGBUS);
    if (handler == SIG_HOLD) {
        sw_sigbus_mask(SIG_BLOCK, &bus, &before);
        sigaction(SIGBUS, NULL, &old);
    } else {
        old.sa_handler = set_bus(handler, 0, false);
        sw_sigbus_mask(SIG_UNBLOCK, &bus, &before);
    }
    return sigismember(&before, SIGBUS) ? SIG_HOLD : old.sa_handler;
}

SW_HOOK int sigignore(int number)
{
    if (number != SIGBUS)
        return SW_REAL(sigignore)(number);
    return set_bus(SIG_IGN, 0, false) == SIG_ERR ? -1 : 0;
}
#pragma GCC diagnostic pop

/* libc sets the handler again that it finds, which is ours, with or without SA_RESTART. */
SW_HOOK int siginterrupt(int number, int interrupt)
{
    struct sigaction act;
    if (number == SIGBUS)
        sigaction(SIGBUS, NULL, &act);
    const int rc = ((int (*)(int, int))sw_real_get(SW_REAL_siginterrupt))(number, interrupt);
    if (rc || number != SIGBUS)
        return rc;
    atomic_store(&interrupts, interrupt != 0);
    act.sa_flags = interrupt ? act.sa_flags & ~SA_RESTART : act.sa_flags | SA_RESTART;
    return sigaction(SIGBUS, &act, NULL);
}
