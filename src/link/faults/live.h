/* SPDX-License-Identifier: BSD-2-Clause */
/* The faults of this process, as SIDEWIRE_FAULTS asks for them. */
#ifndef SW_LINK_FAULTS_LIVE_H
#define SW_LINK_FAULTS_LIVE_H

#include "link/faults/faults.h"

/* Reads the variable; from here on time runs. Again in a forked child: the rules begin anew. At the
 * end of the process a line on stderr says what was done. */
void sw_faults_start(void);

/* NULL: none are asked for. */
extern struct sw_faults *sw_faults_live;

/* Time since the start, as rules count it. */
uint64_t sw_faults_elapsed_ns(uint64_t now_ns);

#endif
