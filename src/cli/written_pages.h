/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether the kernel tells which pages were written: snapshots may ask it in place of summing. */
#ifndef SW_CLI_WRITTEN_PAGES_H
#define SW_CLI_WRITTEN_PAGES_H

struct sw_report;

void sw_written_pages_probe(struct sw_report *report);

#endif
