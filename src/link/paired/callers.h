/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls that come. All processes of a user listen at the one port (SO_REUSEPORT), and the kernel
 * gives a call to any of them. The process that gets it reads the request, which names the queue
 * pair, and hands the connection to the process that has it. So there is no process that the others
 * depend on.
 *
 * A caller has 5 s to ask, asks in one frame of MPA, and takes one of a bounded number of places
 * (link/callers.h). A caller that is put off is told so and closed at once: it has sent one frame,
 * which was read, so the kernel brings it our answer. A caller's word is believed when address,
 * queue pairs and PSNs agree with what the program has set. The engine's thread alone.
 */
#ifndef SW_LINK_PAIRED_CALLERS_H
#define SW_LINK_PAIRED_CALLERS_H

#include <stdbool.h>
#include <stdint.h>

/* Negative errno: nobody can call; said if it `is_needed`. */
int sw_paired_listen_start(bool is_needed);
void sw_paired_listen_ready(uint32_t which);
void sw_paired_caller_ready(uint32_t which);
/* Returns when to look again. */
uint64_t sw_paired_step_callers(uint64_t now_ns);
void sw_paired_listen_stop(void);

#endif
