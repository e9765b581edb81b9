/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Poll handoff: who receives, the program or the engine.
 *
 * A program that polls completions receives by itself, so that it never waits for a thread. The
 * engine only looks each millisecond whether it still polls. When nobody has polled for that long,
 * the engine takes over and sleeps on the port. It takes over at once if the last poll was of an
 * armed completion queue: the program is about to sleep until the event, and somebody must receive
 * its next packet.
 *
 * Each look takes the program's processor, where it has one. On a machine whose timers are slow it
 * costs 50 us. So the engine looks less often at a program that has polled without a pause: after
 * an eighth of the time that it has, and after 8 ms at most. A program that stops polling delays
 * its peers by that eighth, once.
 *
 * One-sided requests of a peer end in no completion, so the program may look at its memory instead
 * of polling. While such requests come, and no message usually follows them (announce.h), the
 * engine sleeps on the port, too. If the program was polling when a packet woke the engine, the two
 * may share a processor. So the engine waits a little. If the program polls still, the engine
 * leaves packets to it, for longer each time.
 *
 * No clock, no system call: times are given.
 */
#ifndef SW_LINK_ROCE_HANDOFF_H
#define SW_LINK_ROCE_HANDOFF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/backoff.h"

/* When the program has not polled for so long, the engine does. */
#define SW_HANDOFF_LOOK_NS 1000000u

struct sw_handoff {
    uint64_t polled_ns;       /* when the program polled last, as far as the engine knows */
    uint64_t looked_ns;       /* when the engine saw a new poll last */
    uint64_t steady_ns;       /* since when the program has polled without a pause; 0: it paused */
    uint64_t pace_ns;         /* between two looks, if that is more than SW_HANDOFF_LOOK_NS; or 0 */
    uint64_t doubts_until_ns; /* so long the engine, once woken, waits for a poll; 0: it does not */
    uint64_t leaves_until_ns; /* so long the engine leaves packets to the program */
    struct sw_backoff backoff; /* of wakes that bring no packet */
    bool was_woken;
    bool is_alone;  /* nobody polls, or the one who does is about to sleep */
    bool is_served; /* peers reach for memory by themselves */
};

/* A packet has woken the engine. */
void sw_handoff_wake(struct sw_handoff *handoff);
/* Whether the engine is to receive, and to sleep on the port then. `polled_ns`: when the program
 * last polled, `sleeps`: it had armed its completion queue by then, `served_ns`: when a peer last
 * reached for memory by itself. */
bool sw_handoff_look(struct sw_handoff *handoff, uint64_t polled_ns, bool sleeps,
                     uint64_t served_ns, uint64_t now_ns);
/* A thread of the program waits, and receives by itself, be it asleep: the engine is not to. But
 * it keeps the timers. */
void sw_handoff_attend(struct sw_handoff *handoff, uint64_t now_ns);
/* Whether peers reach for memory by themselves: then the program may look at its memory instead of
 * polling. */
bool sw_handoff_is_served(uint64_t served_ns, uint64_t now_ns);
/* The engine has received so many packets. */
void sw_handoff_learn(struct sw_handoff *handoff, uint32_t received, uint64_t now_ns);
/* Somebody else is receiving, so the engine does not. Returns when to look again. */
uint64_t sw_handoff_yield(struct sw_handoff *handoff, bool watches, uint64_t now_ns);
/* When to look again while the program polls. */
uint64_t sw_handoff_due_ns(const struct sw_handoff *handoff);
/* Whether the program has polled for so long that the engine looks less often. Such a program runs
 * the timers, too. */
bool sw_handoff_is_steady(const struct sw_handoff *handoff);

#endif
