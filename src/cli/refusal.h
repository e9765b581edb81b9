/* SPDX-License-Identifier: BSD-2-Clause */
/* Why the kernel said no to a call, as far as a process can find out, and what mends it. */
#ifndef SW_CLI_REFUSAL_H
#define SW_CLI_REFUSAL_H

#include <stdbool.h>

struct sw_finding;

/* A number from a file such as /proc/sys/...; `fallback` if there is none. */
long sw_proc_number(const char *path, long fallback);
/* True when a seccomp filter is on this process, as in most containers. */
bool sw_is_filtered(void);

/* Fills detail and mend of a refused system call: `call` names it, `kernel` says what a kernel
 * without it lacks. */
void sw_refusal_explain(struct sw_finding *finding, const char *call, int err, const char *kernel);
/* The same for reading and writing another process's memory, where Yama may be the reason. */
void sw_refusal_explain_ptrace(struct sw_finding *finding, const char *call, int err);

#endif
