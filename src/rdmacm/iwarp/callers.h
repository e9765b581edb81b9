/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Callers of iWARP listeners, in two crowds (link/callers.h): those that have not asked yet, and
 * those that have, and wait for room in their listener's backlog. Everything with sw_rdmacm_lock
 * held.
 */
#ifndef SW_RDMACM_IWARP_CALLERS_H
#define SW_RDMACM_IWARP_CALLERS_H

#include "rdmacm/iwarp/stream.h"

/* A listener's socket is readable. */
void sw_ucm_callers_accept(struct sw_ucm_stream *listener);
/* Something has come from a caller that has not asked yet. */
void sw_ucm_caller_ready(struct sw_ucm_stream *stream);
/* It has not asked in time. */
void sw_ucm_caller_is_late(struct sw_ucm_stream *stream, uint64_t now_ns);
/* Time for those that wait: returns when next. */
uint64_t sw_ucm_callers_tick(uint64_t now_ns);

/* events.c. Its peer has asked. False: the listener has no room now. */
bool sw_ucm_iwarp_tell_request(struct sw_ucm_stream *stream);

#endif
