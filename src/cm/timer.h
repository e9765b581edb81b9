/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Timers, thousands of them, without memory of their own: a pairing heap whose nodes lie in what
 * they belong to. Setting one takes constant time, taking one away O(log n) on average (Fredman,
 * Sedgewick, Sleator, Tarjan, 1986).
 */
#ifndef SW_CM_TIMER_H
#define SW_CM_TIMER_H

#include <stdbool.h>
#include <stdint.h>

struct sw_cm_timer {
    uint64_t due_ns;
    struct sw_cm_timer *child, *next, *back; /* back: the sibling before it, or else the parent */
    bool armed;
};

struct sw_cm_timers {
    struct sw_cm_timer *first; /* the one that is due first; NULL: none */
};

/* Arms it, or changes when it is due. */
void sw_cm_timer_set(struct sw_cm_timers *timers, struct sw_cm_timer *timer, uint64_t due_ns);
/* Nothing happens if it is not armed. */
void sw_cm_timer_clear(struct sw_cm_timers *timers, struct sw_cm_timer *timer);

#endif
