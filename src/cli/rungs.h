/* SPDX-License-Identifier: BSD-2-Clause */
/* Tries each rung of the ladder for real, with processes forked for it. */
#ifndef SW_CLI_RUNGS_H
#define SW_CLI_RUNGS_H

#include <stdbool.h>

struct sw_report;

/* `met`: whether processes can meet (meeting.h). Call while the process has one thread. */
void sw_rungs_probe(struct sw_report *report, bool met);

#endif
