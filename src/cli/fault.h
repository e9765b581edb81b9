/* SPDX-License-Identifier: BSD-2-Clause */
/* Errors for people: what happened and why, then the command that mends it. */
#ifndef SW_CLI_FAULT_H
#define SW_CLI_FAULT_H

/* Prints "sidewire: text" and, if `mend` is neither NULL nor empty, a line "  mend: ..." to stderr.
 */
void sw_fault(const char *mend, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
