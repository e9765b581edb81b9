/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams that go by TCP (docs/tcp.md): when they do, and what the engine does for them. */
#ifndef SW_LINK_PAIRED_DATAGRAMS_H
#define SW_LINK_PAIRED_DATAGRAMS_H

#include <stdbool.h>
#include <stdint.h>

/* From here on they go by TCP; before the port is opened. Or, if not `all`, those to
 * hosts where UDP finds no answer (hosts.h). */
void sw_paired_datagrams_start(bool all);
void sw_paired_datagrams_ready(uint32_t which);
/* Returns when to look again. */
uint64_t sw_paired_step_datagrams(uint64_t now_ns);
/* Waits until those that wait are out; not for long: a second. Without locks. Their senders have
 * their completions, and may end by _exit(). */
void sw_paired_datagrams_settle(void);
void sw_paired_datagrams_fork_child(void);

#endif
