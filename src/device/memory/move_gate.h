/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pages that are about to move, made known to peers. A peer's process_vm_writev() takes hold of a
 * page and then stores to it; if the page moved in between, the store would be lost. So the owner
 * closes the gate before it moves pages: it waits for processes that store from outside, and later
 * ones see the gate and try again. User-mode stores need none of this: userfaultfd stops them.
 */
#ifndef SW_DEVICE_MEMORY_MOVE_GATE_H
#define SW_DEVICE_MEMORY_MOVE_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "device/rules/pub.h"

/* Makes this process's page adoption keep the gate (device/adopt/adopt.h). */
void sw_move_gate_install(void);

/* For peers, inside an access section: whether to stay away from these bytes for now. */
bool sw_move_gate_bars(const struct sw_pub *peer, uint64_t va, uint64_t len_bytes);

#endif
