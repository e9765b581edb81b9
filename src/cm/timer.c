/* SPDX-License-Identifier: BSD-2-Clause */
#include "cm/timer.h"

#include <stddef.h>

/* The one that is due later becomes the first child of the other. Neither has siblings. */
static struct sw_cm_timer *meld_heaps(struct sw_cm_timer *a, struct sw_cm_timer *b)
{
    if (!a || !b)
        return a ? a : b;
    if (b->due_ns < a->due_ns) {
        struct sw_cm_timer *swap = a;
        a = b;
        b = swap;
    }
    b->back = a;
    b->next = a->child;
    if (b->next)
        b->next->back = b;
    a->child = b;
    return a;
}

static struct sw_cm_timer *timer_take_first(struct sw_cm_timer **list)
{
    struct sw_cm_timer *first = *list;
    if (first) {
        *list = first->next;
        first->next = first->back = NULL;
    }
    return first;
}

/* One heap of a list of siblings: in pairs from the left, then the pairs from the right. */
static struct sw_cm_timer *meld_all(struct sw_cm_timer *list)
{
    struct sw_cm_timer *pairs = NULL, *whole = NULL;
    while (list) {
        struct sw_cm_timer *first = timer_take_first(&list);
        struct sw_cm_timer *pair = meld_heaps(first, timer_take_first(&list));
        pair->next = pairs;
        pairs = pair;
    }
    while (pairs)
        whole = meld_heaps(timer_take_first(&pairs), whole);
    return whole;
}

void sw_cm_timer_set(struct sw_cm_timers *timers, struct sw_cm_timer *timer, uint64_t due_ns)
{
    sw_cm_timer_clear(timers, timer);
    *timer = (struct sw_cm_timer){.due_ns = due_ns, .armed = true};
    timers->first = meld_heaps(timers->first, timer);
}

void sw_cm_timer_clear(struct sw_cm_timers *timers, struct sw_cm_timer *timer)
{
    if (!timer->armed)
        return;
    struct sw_cm_timer *children = meld_all(timer->child);
    if (timer == timers->first) {
        timers->first = children;
    } else {
        if (timer->back->child == timer)
            timer->back->child = timer->next;
        else
            timer->back->next = timer->next;
        if (timer->next)
            timer->next->back = timer->back;
        timers->first = meld_heaps(timers->first, children);
    }
    *timer = (struct sw_cm_timer){.armed = false};
}
