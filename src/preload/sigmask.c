/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of the calls that block signals: SIGBUS stays unblocked in a thread that accesses peers'
 * memory, and the program is told what it has set (base/sigbus.h). In all other threads they are
 * libc's. */
#include <errno.h>
#include <signal.h>

#include "base/sigbus.h"
#include "preload/real.h"

SW_HOOK int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    return sw_sigbus_is_open ? sw_sigbus_mask(how, set, old)
                             : SW_REAL(pthread_sigmask)(how, set, old);
}

SW_HOOK int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
    if (!sw_sigbus_is_open)
        return SW_REAL(sigprocmask)(how, set, old);
    const int rc = sw_sigbus_mask(how, set, old);
    if (!rc)
        return 0;
    errno = rc;
    return -1;
}

/* Only the first 32 signals have a bit. */
static int change_bits(int how, int bits)
{
    sigset_t set, before;
    int old = 0;
    sigemptyset(&set);
    for (int number = 1; number <= 32; number++)
        if ((unsigned int)bits >> (number - 1) & 1)
            sigaddset(&set, number);
    sw_sigbus_mask(how, &set, &before);
    for (int number = 1; number <= 32; number++)
        if (sigismember(&before, number) == 1)
            old |= (int)(1u << (number - 1));
    return old;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
SW_HOOK int sigblock(int bits)
{
    return sw_sigbus_is_open ? change_bits(SIG_BLOCK, bits) : SW_REAL(sigblock)(bits);
}

SW_HOOK int sigsetmask(int bits)
{
    return sw_sigbus_is_open ? change_bits(SIG_SETMASK, bits) : SW_REAL(sigsetmask)(bits);
}

static int change_bus(int how)
{
    sigset_t bus;
    sigemptyset(&bus);
    sigaddset(&bus, SIGBUS);
    sw_sigbus_mask(how, &bus, NULL);
    return 0;
}

SW_HOOK int sighold(int number)
{
    return number == SIGBUS ? change_bus(SIG_BLOCK) : SW_REAL(sighold)(number);
}

SW_HOOK int sigrelse(int number)
{
    return number == SIGBUS ? change_bus(SIG_UNBLOCK) : SW_REAL(sigrelse)(number);
}
#pragma GCC diagnostic pop
