/* SPDX-License-Identifier: BSD-2-Clause */
/* A thread of the program that takes in packets while it waits for an event (link/attend.h).
 * Without locks of the device, but for sw_roce_attends(). */
#ifndef SW_LINK_ROCE_ATTEND_H
#define SW_LINK_ROCE_ATTEND_H

#include <stdbool.h>
#include <stdint.h>

/* Longer than any sleep of one that attends; then it is taken for gone. */
#define SW_ROCE_ATTEND_NS 6000000u

/* The calling thread attends from here on. False: there is nothing to attend to. */
bool sw_roce_attend_begin(uint64_t now_ns);
/* Takes in what has come: on the sockets that are hot, unless another thread receives; or, if the
 * thread `is_woken` for it, in any case and on all. Returns whether it fired events. */
bool sw_roce_attend_look(bool is_woken, uint64_t now_ns, bool *has_received);
/* It is about to sleep, on the descriptor that is returned. */
int sw_roce_attend_rest(uint64_t now_ns);
/* The program goes on, and will come back in a moment. */
void sw_roce_attend_end(uint64_t now_ns);
/* It will not: the engine takes over, if it has left anything to this thread. */
void sw_roce_attend_leave(void);

/* Whether the calling thread attended a moment ago, and so will when it sleeps next. */
bool sw_roce_attends(void);

#endif
