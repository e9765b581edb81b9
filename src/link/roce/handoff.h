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

/* The states. Each says who receives. */
enum sw_receiver {
    SW_RECEIVER_ENGINE, /* nobody polls, or the one who does is about to sleep */
    SW_RECEIVER_POLLER, /* a program polls; the engine looks each millisecond if it still does */
    SW_RECEIVER_STEADY, /* it has for so long that the engine looks less often; it runs timers */
    SW_RECEIVER_WAITER, /* a thread that waits for an event (attend.h), awake or asleep */
    /* A program polls, but peers reach for memory by themselves: it may look at that instead. */
    SW_RECEIVER_BOTH,  /* so the engine receives, too */
    SW_RECEIVER_DOUBT, /* a packet woke the engine, which gives the program time to take it */
    SW_RECEIVER_LEFT,  /* the program did, or there was none: the engine leaves it alone a while */
};

/* What the engine sees of the others when it looks. */
struct sw_handoff_seen {
    uint64_t polled_ns;         /* when a thread of the program last polled, ... */
    bool sleeps;                /* ... a queue that is armed: it is about to sleep; ... */
    uint64_t attended_until_ns; /* ... or waits so long and receives; ... */
    uint64_t posted_ns;         /* ... or posted */
    uint64_t served_ns;         /* when a peer last reached for memory by itself, and no message was
                                   expected to follow */
    bool serves_long;           /* that was for so much that it comes in parts */
};

struct sw_handoff {
    enum sw_receiver receiver; /* since the engine's last look */
    bool was_woken;            /* by a packet, since it last received */
    uint64_t polled_ns;        /* when the program polled last, as far as the engine knows */
    uint64_t looked_ns;        /* when the engine saw a new poll last */
    uint64_t steady_ns;        /* since when the program has polled without a pause; 0: it paused */
    uint64_t pace_ns;          /* STEADY: between two looks; else 0 */
    uint64_t doubts_until_ns;  /* DOUBT: so long the engine waits for a poll; else 0 */
    uint64_t leaves_until_ns;  /* so long the engine leaves packets to the program */
    struct sw_backoff backoff; /* of wakes that bring no packet */
};

/* ---- the engine's turn, in this order ---- */

/* A packet has woken it. */
void sw_handoff_wake(struct sw_handoff *handoff);
/* It looks: who receives from now on. */
enum sw_receiver sw_handoff_look(struct sw_handoff *handoff, const struct sw_handoff_seen *seen,
                                 uint64_t now_ns);
/* Whether it is to receive, and to sleep on the port then. */
bool sw_receiver_is_engine(enum sw_receiver receiver);

/* Which processor it keeps off: its place is where the program is not. */
enum sw_keep_off { SW_KEEP_OFF_NONE, SW_KEEP_OFF_PROGRAM, SW_KEEP_OFF_AS_BEFORE };
enum sw_keep_off sw_handoff_keep_off(const struct sw_handoff *handoff,
                                     const struct sw_handoff_seen *seen, uint64_t now_ns);

/* Somebody else is receiving, so it does not. Returns when to look again. */
uint64_t sw_handoff_yield(struct sw_handoff *handoff, uint64_t now_ns);

/* What it receives now. `is_due`: there is something else to do for which all must have been heard,
 * `expects_more`: it has not slept since, or the rest of a WRITE is on its way. */
enum sw_intake { SW_INTAKE_NOTHING, SW_INTAKE_HOT, SW_INTAKE_ALL };
enum sw_intake sw_handoff_intake(const struct sw_handoff *handoff, bool is_due, bool expects_more);
/* It has received so many packets. */
void sw_handoff_learn(struct sw_handoff *handoff, uint32_t received, uint64_t now_ns);

/* When to look again, and not for the timers of QPs. `acks_due_ns`: when delayed ACKs are, which a
 * program that polls sends itself. */
uint64_t sw_handoff_due_ns(const struct sw_handoff *handoff, uint64_t acks_due_ns);

/* ---- */

/* Whether peers reach for memory by themselves: then the program may look at its memory instead of
 * polling. */
bool sw_handoff_is_served(uint64_t served_ns, uint64_t now_ns);

#endif
