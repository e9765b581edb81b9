/* SPDX-License-Identifier: BSD-2-Clause */
/* What else a process needs or may wonder about: libraries, interfaces, limits. */
#ifndef SW_CLI_MACHINE_H
#define SW_CLI_MACHINE_H

struct sw_report;

void sw_machine_probe(struct sw_report *report);

#endif
