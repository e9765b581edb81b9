/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of page adoption that its fork handlers share with it. */
#ifndef SW_DEVICE_ADOPT_ADOPT_LOCK_H
#define SW_DEVICE_ADOPT_ADOPT_LOCK_H

/* The move lock: held while segments are made, returned, or copied for a fork. Before the table
 * lock. */
void sw_adopt_lock(void);
void sw_adopt_unlock(void);
/* For code that relies on it: fails unless this thread has it. */
void sw_adopt_assert_locked(void);

/* Installs the fork handlers. */
void sw_adopt_fork_install(void);

#endif
