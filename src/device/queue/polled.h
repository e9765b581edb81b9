/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a program polls the completions of a queue pair. Such a program takes in by itself what
 * peers have sent, and the engine leaves the queue pair to it. Were the engine to work for it, too,
 * each would wait for the other's locks. On one processor they would take turns: the peer sees
 * nothing happen, rings, and wakes the engine once more.
 *
 * The engine counts how often the program has looked since its own last look. A program that did so
 * every 20 us polls. But it may have stopped a moment ago, to look at its memory instead. So the
 * engine comes again soon; if the program has polled no more, it was left alone in vain, and is
 * not, for the next times.
 *
 * No clock: times are given.
 */
#ifndef SW_DEVICE_QUEUE_POLLED_H
#define SW_DEVICE_QUEUE_POLLED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/backoff.h"

struct sw_qp;

struct sw_polled {
    uint64_t looked_ns;        /* by the engine */
    uint64_t polled_ns;        /* of the last look that found it polling; 0: none has */
    uint32_t looks;            /* by the program, until then */
    uint32_t times;            /* that it was found polling, in a row */
    struct sw_backoff backoff; /* of times that it was found polling and did not go on */
};

enum sw_poller {
    SW_POLLER_NONE,    /* the engine is to do it */
    SW_POLLER_PERHAPS, /* it was there a moment ago: to be looked at again soon */
    SW_POLLER_STEADY,  /* time and again */
};

/* `looks`: how often it has polled and found less than it asked for, ever. Only then it looks what
 * peers have sent. */
enum sw_poller sw_polled_look(struct sw_polled *polled, uint32_t looks, uint64_t now_ns);

/* The same of a queue pair. One of which a CQ is armed sleeps, or is about to. With nic.lock; the
 * engine's alone. */
enum sw_poller sw_qp_poller(struct sw_qp *qp, uint64_t now_ns);

#endif
