/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/waits.h"

#include <errno.h>
#include <stdbool.h>
#include <time.h>

#include "base/clock.h"
#include "base/held_signals.h"
#include "base/minmax.h"
#include "link/attend.h"
#include "preload/real.h"

static int look_now(void *arg)
{
    struct sw_wait *wait = arg;
    return wait->call(wait, 0);
}

static uint64_t left_ns(uint64_t until_ns)
{
    const uint64_t now_ns = sw_clock_ns();
    return until_ns == UINT64_MAX ? UINT64_MAX : now_ns < until_ns ? until_ns - now_ns : 0;
}

/* Sleeps on the port, too. Returns -1 with errno as poll(), or 0: look again. `goes_on`: whether
 * the thread still attends. */
static int rest_on_port(struct sw_wait *wait, struct sw_attend *attend, uint64_t until_ns,
                        bool *goes_on)
{
    uint64_t most_ns = 0;
    const int port = sw_attend_rest(attend, &most_ns);
    *goes_on = port >= 0;
    if (port < 0)
        return 0;
    const uint64_t ns = sw_min_u64(most_ns, left_ns(until_ns));
    const struct timespec time = sw_time_of_ns(ns);
    struct pollfd *own = &wait->fds[wait->count];
    *own = (struct pollfd){.fd = port, .events = POLLIN};
    const int ready = SW_REAL(ppoll)(wait->fds, wait->count + 1, &time, wait->mask);
    if (ready < 0 && errno == EINTR)
        return -1;
    *goes_on = ready >= 0 && !(own->revents & (POLLNVAL | POLLERR));
    if (ready > 0 && own->revents & POLLIN)
        sw_attend_wake(attend);
    return 0;
}

/* What attending has found; 0: nothing, and the thread does not attend any more, or the time is
 * over. */
static int wait_attended(struct sw_wait *wait, struct sw_attend *attend, uint64_t until_ns)
{
    bool goes_on = true;
    while (goes_on) {
        int found = sw_attend_look(attend, look_now, wait);
        if (!found && !left_ns(until_ns))
            return 0;
        if (!found)
            found = rest_on_port(wait, attend, until_ns, &goes_on);
        if (found)
            return found;
    }
    return 0;
}

/* Signals are let through where the kernel sleeps, and nowhere else: a handler may jump out of a
 * call like this, past locks that are held here. */
int sw_wait_run(struct sw_wait *wait, uint64_t ns)
{
    const int saved_errno = errno;
    const uint64_t until_ns = ns == UINT64_MAX ? UINT64_MAX : sw_clock_ns() + ns;
    struct sw_attend attend;
    sigset_t before;
    sw_signals_hold(&before);
    if (!wait->mask)
        wait->mask = &before;
    int found = 0;
    if (sw_attend_begin(&attend))
        found = wait_attended(wait, &attend, until_ns);
    if (!found)
        found = wait->call(wait, left_ns(until_ns));
    const int error = errno;
    sw_attend_end(&attend, found > 0);
    sw_signals_let_go(&before);
    errno = found < 0 ? error : saved_errno;
    return found;
}
