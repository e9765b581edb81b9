/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether the engine is the one to receive. A program that polls completions receives by itself, so
 * that a busy poller never waits for a thread; while it does, the engine only looks after it every
 * millisecond. When nobody has polled for that long the engine takes over and sleeps on the port.
 * It does so at once where the last poll was of a completion queue that is armed: the program is
 * about to sleep until the event, and its next packet must find somebody.
 *
 * What peers do to memory by themselves ends in no completion, and the program may look at the
 * memory instead of polling. So while such requests come, and no message usually follows them
 * (announce.h), the engine sleeps on the port, too. But if
 * the program was polling when a packet woke it, the engine would only be in its way, on the same
 * processor as like as not: it waits a little, and if the program polls still, leaves it alone, for
 * longer each time.
 *
 * No clock, no system call: times are given.
 */
#ifndef SW_LINK_ROCE_HANDOFF_H
#define SW_LINK_ROCE_HANDOFF_H

#include <stdbool.h>
#include <stdint.h>

/* How long a program may not have polled until the engine does. */
#define SW_HANDOFF_LOOK_NS 1000000u

struct sw_handoff {
    uint64_t polled_ns;       /* when the program last did, as far as is known */
    uint64_t looked_ns;       /* when it was last seen that it had */
    uint64_t doubts_until_ns; /* whether the program polls, having been woken; 0: it does not */
    uint64_t leaves_until_ns; /* packets to the program */
    uint32_t vain;            /* wakes for nothing, in a row */
    uint32_t restraint;       /* how long it leaves them, in doublings */
    bool was_woken;
    bool is_alone;  /* nobody polls, or who does is about to sleep */
    bool is_served; /* peers reach for memory by themselves */
};

/* A packet has woken the engine. */
void sw_handoff_wake(struct sw_handoff *handoff);
/* Whether the engine is to receive, and to sleep on the port then. `polled_ns`: when the program
 * last polled, `sleeps`: it had armed its completion queue by then, `served_ns`: when a peer last
 * reached for memory by itself. */
bool sw_handoff_look(struct sw_handoff *handoff, uint64_t polled_ns, bool sleeps,
                     uint64_t served_ns, uint64_t now_ns);
/* What came of receiving. */
void sw_handoff_learn(struct sw_handoff *handoff, uint32_t received, uint64_t now_ns);
/* Somebody else is receiving, whether or not the engine was to; returns when to look again. */
uint64_t sw_handoff_yield(struct sw_handoff *handoff, bool watches, uint64_t now_ns);
/* When to look again while the program polls. */
uint64_t sw_handoff_due_ns(const struct sw_handoff *handoff);

#endif
