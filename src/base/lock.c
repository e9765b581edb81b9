/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS 100000 /* for whom a release has missed */

static bool try_take(struct sw_lock *lock)
{
    return atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) == 0;
}

void sw_lock_acquire_slowly(struct sw_lock *lock)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    const int saved_errno = errno;
    if (atomic_fetch_add_explicit(&lock->wanted, 1, memory_order_seq_cst))
        sched_yield(); /* to the first waiter */
    while (!try_take(lock))
        syscall(SYS_futex, &lock->held, FUTEX_WAIT_PRIVATE, 1, &nap, NULL, 0);
    atomic_fetch_sub_explicit(&lock->wanted, 1, memory_order_relaxed);
    errno = saved_errno;
}

void sw_lock_wake(struct sw_lock *lock)
{
    const int saved_errno = errno;
    syscall(SYS_futex, &lock->held, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = saved_errno;
}
