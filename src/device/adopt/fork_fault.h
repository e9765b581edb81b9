/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a child of fork() touches before the first of its fork handlers runs. glibc unlocks the
 * heads of malloc's arenas and all FILEs there, where the process has several threads. A page with
 * one of them may be adopted: a program that registers whole pages takes along what lies beside its
 * buffers. Such a page is not in the child yet, so the child faults, and is helped.
 */
#ifndef SW_DEVICE_ADOPT_FORK_FAULT_H
#define SW_DEVICE_ADOPT_FORK_FAULT_H

#include <stdbool.h>

/* Before a fork. In the child each fault is shown to `mend`, which makes the address accessible or
 * says that it cannot. All other faults, those of the parent too, are the program's. */
void sw_fork_fault_watch(bool (*mend)(const void *address));
/* After it, in both processes. */
void sw_fork_fault_end(void);

#endif
