/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Trials: connections of RoCE whose packets find no answer call their peers by TCP, and are carried
 * by it if the call is taken (transport/fallback.h has the rule). Until then the queue pair is
 * RoCE's, and has a pairing beside it. The outcome is remembered for its host, so that the next
 * connections there call at once.
 */
#ifndef SW_LINK_PAIRED_TRIAL_H
#define SW_LINK_PAIRED_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/fallback.h"

struct sw_paired;
struct sw_qp;

/* Reads SIDEWIRE_TCP_FALLBACK. From here on RoCE's queue pairs may move to TCP. */
void sw_paired_trials_start(void);
bool sw_paired_trials_are_on(void);
void sw_paired_trials_fork_child(void);
/* A pairing for a queue pair of RoCE. NULL: it has none, or may not have one. */
struct sw_paired *sw_paired_try(struct sw_qp *qp);
/* What becomes of the call. False: a trial's queue pair stays with RoCE; others have no say. */
bool sw_paired_tell_trial(const struct sw_paired *p, enum sw_fallback_event event);
/* What is left to do for those that moved. Returns when to look again. */
uint64_t sw_paired_step_moved(uint64_t now_ns);
/* Whether there is nothing to try any more. */
bool sw_paired_is_vain(const struct sw_paired *p);
/* The queue pair is TCP's, by whichever side's call. */
void sw_paired_take_over(struct sw_paired *p);

#endif
