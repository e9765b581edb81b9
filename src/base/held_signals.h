/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Signals that wait while this thread looks for something instead of sleeping. The call it stands
 * for would be ended by a signal. A handler that ran meanwhile would have ended nothing, and the
 * sleep that follows would not know of it.
 */
#ifndef SW_BASE_HELD_SIGNALS_H
#define SW_BASE_HELD_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

/* Holds all but those of faults. `before`: the thread's mask until now. */
void sw_signals_hold(sigset_t *before);
/* Handlers run now. */
void sw_signals_let_go(const sigset_t *before);
/* The same where others may have changed the mask of a signal of faults meanwhile, as handlers of a
 * fork do. These hold signals as long as they hold locks: a handler of the program may fork, too,
 * and its fork would wait for the lock of the one that it interrupted. */
void sw_signals_let_go_held(const sigset_t *before);
/* Whether one waits that the mask `before` lets through. */
bool sw_signals_are_held(const sigset_t *before);
/* Whether one of these ends a call that sleeps: its handler is without SA_RESTART. */
bool sw_signals_interrupt(const sigset_t *before);

#endif
