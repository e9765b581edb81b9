/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long a thread waits for the answer of a process that it meets. One that is stopped never
 * answers, and whoever accepts its connection would wait for all of the time, each time anew: a few
 * of them kept a server with one thread from all others. So what was waited in vain counts against
 * the next waits, and is forgotten in eight times as long.
 */
#ifndef SW_LINK_DIRECT_PROCESS_SILENCE_H
#define SW_LINK_DIRECT_PROCESS_SILENCE_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"

#define SW_SILENCE_MAX_NS (5 * SW_NS_PER_S) /* who gets a processor has answered by then */
#define SW_SILENCE_MIN_NS (50 * SW_NS_PER_MS)
#define SW_SILENCE_FORGETS 8u

/* Threads share it: of two waits in vain at once one may be lost, which does no harm. */
struct sw_silence {
    _Atomic uint64_t forgotten_ns; /* when all waits in vain will be */
};

/* How long an answer is waited for. */
static inline uint64_t sw_silence_patience(const struct sw_silence *silence, uint64_t now_ns)
{
    const uint64_t until_ns = silence->forgotten_ns;
    const uint64_t waited_ns = until_ns > now_ns ? (until_ns - now_ns) / SW_SILENCE_FORGETS : 0;
    return waited_ns + SW_SILENCE_MIN_NS < SW_SILENCE_MAX_NS ? SW_SILENCE_MAX_NS - waited_ns
                                                             : SW_SILENCE_MIN_NS;
}

/* `waited_ns` were in vain. */
static inline void sw_silence_note(struct sw_silence *silence, uint64_t now_ns, uint64_t waited_ns)
{
    const uint64_t last_ns = now_ns + SW_SILENCE_FORGETS * SW_SILENCE_MAX_NS;
    uint64_t until_ns = silence->forgotten_ns;
    until_ns = (until_ns > now_ns ? until_ns : now_ns) + SW_SILENCE_FORGETS * waited_ns;
    silence->forgotten_ns = until_ns < last_ns ? until_ns : last_ns;
}

#endif
