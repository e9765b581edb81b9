/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Addresses whose neighbours are not known yet. As the kernel does, rdma_resolve_addr() succeeds
 * once packets can leave for the next hop, and else fails after the time that the program gives:
 * ADDR_ERROR with -ETIMEDOUT.
 *
 * sw_rdmacm_lock held in all calls.
 */
#ifndef SW_RDMACM_CONNECTIONS_RESOLVING_H
#define SW_RDMACM_CONNECTIONS_RESOLVING_H

#include <stdbool.h>
#include <stdint.h>

#include "rdmacm/address.h"

struct sw_ucm_id;

/* Device and source of the ID are known. False: so is the neighbour, or none is needed. True: the
 * ID is SW_UCM_ADDR_QUERY until its event is told. If that is an error, it has the source `before`,
 * and a device only if `had_device`. */
bool sw_ucm_resolving_begin(struct sw_ucm_id *id, const union sw_address *before, bool had_device,
                            uint32_t timeout_ms);
/* Nothing of it is told any more. */
void sw_ucm_resolving_forget(struct sw_ucm_id *id);

/* Tells what is due; returns when next. UINT64_MAX: never. Engine's thread. */
uint64_t sw_ucm_resolving_tick(uint64_t now_ns);

void sw_ucm_resolving_fork_child(void);

#endif
