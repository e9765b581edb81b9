/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections to us that have not said yet what they are for: each proves first that it may ask
 * (proof.h). Engine thread only.
 */
#ifndef SW_LINK_DIRECT_PROCESS_NEWCOMER_H
#define SW_LINK_DIRECT_PROCESS_NEWCOMER_H

struct sw_newcomer;

/* The listening socket is readable. */
void sw_newcomer_accept(void);
/* So is the newcomer's. Once it is proven, the engine watches it as SW_WATCH_PROVEN. */
void sw_newcomer_prove(struct sw_newcomer *newcomer);
void sw_newcomer_fork_child(void);

#endif
