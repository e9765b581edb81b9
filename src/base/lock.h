/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A spin lock for sections of at most a few microseconds. Uncontended it is one exchange and one
 * store. Contended it pauses, then yields, so that a preempted holder on a small machine gets the
 * CPU. A thread that polls takes it again and again, and would always win against one that waits:
 * who has waited for a while says so, and the others let him pass.
 */
#ifndef SW_BASE_LOCK_H
#define SW_BASE_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

struct sw_lock {
    atomic_uint held;
    atomic_uint wanted; /* threads that have waited for long */
};

#define SW_LOCK_PATIENCE 256u /* spins */

static inline void sw_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
}

static inline bool sw_lock_try(struct sw_lock *lock)
{
    return atomic_load_explicit(&lock->held, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&lock->wanted, memory_order_relaxed) == 0 &&
           atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) ==
               0; /* pairs with sw_lock_release */
}

static inline void sw_lock_acquire(struct sw_lock *lock)
{
    unsigned int spins = 0;
    if (__builtin_expect(atomic_load_explicit(&lock->wanted, memory_order_relaxed) != 0, 0))
        sched_yield();
    while (
        __builtin_expect(atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) != 0, 0)) {
        while (atomic_load_explicit(&lock->held, memory_order_relaxed)) {
            if (++spins == SW_LOCK_PATIENCE)
                atomic_fetch_add_explicit(&lock->wanted, 1, memory_order_relaxed);
            if (spins % 64 == 0)
                sched_yield();
            else
                sw_cpu_relax();
        }
    }
    if (__builtin_expect(spins >= SW_LOCK_PATIENCE, 0))
        atomic_fetch_sub_explicit(&lock->wanted, 1, memory_order_relaxed);
}

static inline void sw_lock_release(struct sw_lock *lock)
{
    atomic_store_explicit(&lock->held, 0,
                          memory_order_release); /* pairs with the acquire of the next holder */
}

#endif
