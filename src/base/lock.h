/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A lock for sections of at most a few microseconds. Uncontended it is one exchange, one store and
 * a look at the word beside it. Contended it spins, then sleeps, so that a holder that was
 * preempted gets the CPU, and the releaser wakes a waiter. A thread that polls takes it again and
 * again, and would always win against one that waits: a waiter says so after a while, and the
 * others let it pass.
 */
#ifndef SW_BASE_LOCK_H
#define SW_BASE_LOCK_H

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct sw_lock {
    atomic_uint held;
    atomic_uint wanted; /* threads that have waited for long, and sleep */
};

#define SW_LOCK_SPINS 64u

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

/* lock.c: takes it after a sleep; and wakes one who sleeps. */
void sw_lock_acquire_slowly(struct sw_lock *lock);
void sw_lock_wake(struct sw_lock *lock);

static inline void sw_lock_acquire(struct sw_lock *lock)
{
    unsigned int spins = 0;
    while (__builtin_expect(!sw_lock_try(lock), 0)) {
        if (++spins == SW_LOCK_SPINS) {
            sw_lock_acquire_slowly(lock);
            return;
        }
        sw_cpu_relax();
    }
}

static inline bool sw_lock_is_held(const struct sw_lock *lock)
{
    return atomic_load_explicit(&lock->held, memory_order_relaxed) != 0;
}

/* For code that relies on the lock. A lock does not know who holds it, so this fails only where
 * nobody does. It stays in release builds: the holder of the lock has its word in the cache. A
 * macro, so that the message names the caller. */
#define sw_lock_assert_held(lock) assert(sw_lock_is_held(lock))

static inline void sw_lock_release(struct sw_lock *lock)
{
    atomic_store_explicit(&lock->held, 0,
                          memory_order_release); /* pairs with the acquire of the next holder */
    /* Without a fence between, it may miss one that is about to sleep, and wakes by itself then. */
    if (__builtin_expect(atomic_load_explicit(&lock->wanted, memory_order_relaxed) != 0, 0))
        sw_lock_wake(lock);
}

/* As sw_lock_assert_held(), for a mutex that is not recursive. It costs an atomic operation: off
 * the data path. */
#define sw_mutex_assert_held(mutex) assert(pthread_mutex_trylock(mutex) == EBUSY)

#endif
