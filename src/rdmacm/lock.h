/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lock of everything in rdmacm/ and of the machine of cm/. Taken by commands and by the engine;
 * not held while blocking. In a forked child it is free. Where it comes among the locks is in
 * mads/agent.h.
 */
#ifndef SW_RDMACM_LOCK_H
#define SW_RDMACM_LOCK_H

#include <pthread.h>

#include "base/lock.h"

extern pthread_mutex_t sw_rdmacm_lock;

static inline void sw_rdmacm_assert_locked(void)
{
    sw_mutex_assert_held(&sw_rdmacm_lock);
}

#endif
