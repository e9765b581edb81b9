/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads memory that may vanish: another thread unmaps it, forbids it, or shortens its file. The
 * fault of such a read ends the read, and not the program.
 *
 *     struct snap_fault fault;
 *     snap_fault_begin(&fault);
 *     if (sigsetjmp(fault.back, 0))
 *         return -EFAULT;
 *     ... reads ...
 *     snap_fault_end(&fault);
 *
 * Notes. process_vm_readv() of the own process has an error in place of a fault, but it copies what
 * is only to be summed, and some containers refuse it. So handlers of SIGSEGV and SIGBUS are set,
 * while there is a capture. Any other fault goes to the handler that was there, or ends the program
 * as it would have without. A program that sets handlers of its own later has all faults.
 */
#ifndef SW_SNAPSHOT_FAULTS_H
#define SW_SNAPSHOT_FAULTS_H

#include <setjmp.h>

struct snap_fault {
    sigjmp_buf back;
    const void *address; /* where it was */
    int place;           /* of the thread, in a table */
};

/* Sets the handlers for the first capture, and takes them away after the last one. */
void snap_faults_open(void);
void snap_faults_close(void);

/* The thread's faults are caught from here on, until the first one, or the end. */
void snap_fault_begin(struct snap_fault *fault);
void snap_fault_end(struct snap_fault *fault);

#endif
