/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A kernel says DREQ for what a program leaves behind, and says it again until it is answered,
 * whatever has become of the program. Here the process is all there is: so its end waits a little
 * for the answers of other hosts. One that is killed leaves that to others (handover.h).
 */
#ifndef SW_RDMACM_CONNECTIONS_PARTING_H
#define SW_RDMACM_CONNECTIONS_PARTING_H

#include <stdbool.h>
#include <stdint.h>

/* What is due of it; returns when next. UINT64_MAX: never. Engine's thread, sw_rdmacm_lock held. */
uint64_t sw_ucm_parting_tick(uint64_t now_ns);
/* Whether the end has begun: the program is told of nothing any more. Its threads may still run, on
 * memory that it has freed. */
bool sw_ucm_is_parting(void);

#endif
